"""The page of the client is true, and programs of the shape of Celery's first pages run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import List

from .support import PATIENCE, BrokerCase

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class PageCase(BrokerCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])}

    def write(self, name: str, text: str) -> None:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))

    def work(self, *command: str) -> None:
        """Start a worker, until the test ends."""
        log = open(os.path.join(self.folder, "worker.log"), "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)

    def run_program(self, text: str) -> List[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)], cwd=self.folder, env=self.env, timeout=PATIENCE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()


class ReadmeTest(PageCase):
    def test_the_programs_of_the_page_run_and_print_what_it_says(self) -> None:
        with open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
            page = file.read()
        blocks = re.findall(r"<!-- (file \S+|worker|run) -->\n```(?:python|sh)\n(.*?)```", page, re.S)
        self.assertEqual([kind.split()[0] for kind, _ in blocks], ["file", "worker", "run", "run", "run"])
        for kind, text in blocks:
            if kind.startswith("file"):
                self.write(kind.split()[1], text)
            elif kind == "worker":
                self.work(sys.executable, *text.split()[1:])
            else:
                self.assertEqual(self.run_program(text), re.findall(r"print\(.*  # (.+)$", text, re.M))
        for text in re.findall(r"```python\n(.*?)```", page, re.S):
            compile(text, "README.md", "exec")


class FirstStepsTest(PageCase):
    """A module with an app, as Celery's first page has it."""

    def test_first_steps(self) -> None:
        self.write(
            "tasks.py",
            """
            from penstock import Celery

            app = Celery('tasks', backend='rpc://', broker='pyamqp://guest@localhost//')
            app.config_from_object('celeryconfig')

            @app.task
            def add(x, y):
                return x + y
            """,
        )
        self.write(
            "celeryconfig.py",
            """
            broker_url = 'pyamqp://'
            result_backend = 'rpc://'

            task_serializer = 'json'
            result_serializer = 'json'
            accept_content = ['json']
            timezone = 'Europe/Oslo'
            enable_utc = True

            task_routes = {
                'tasks.add': 'low-priority',
            }
            """,
        )
        self.work(sys.executable, "-m", "penstock", "-A", "tasks", "worker", "--loglevel=INFO", "-Q", "low-priority")
        out = self.run_program(
            """
            from tasks import add
            result = add.delay(4, 4)
            print(result.get(timeout=60), result.ready())
            print(add.delay(2, 2).get(propagate=False))
            try:
                add.delay(1, 'x').get(timeout=60)
            except TypeError as error:
                print('TypeError')
            """
        )
        self.assertEqual(out, ["8 True", "4", "TypeError"])


class NextStepsTest(PageCase):
    """A package with an app, as Celery's second page has it."""

    def test_next_steps(self) -> None:
        self.write("proj/__init__.py", "")
        self.write(
            "proj/celery.py",
            """
            from penstock import Celery

            app = Celery('proj',
                         broker='amqp://',
                         backend='rpc://',
                         include=['proj.tasks'])

            # Optional configuration, see the application user guide.
            app.conf.update(
                result_expires=3600,
            )
            app.conf.update(
                task_routes = {
                    'proj.tasks.add': {'queue': 'hipri'},
                },
            )

            if __name__ == '__main__':
                app.start()
            """,
        )
        self.write(
            "proj/tasks.py",
            """
            from .celery import app


            @app.task
            def add(x, y, debug=False):
                return x + y


            @app.task
            def mul(x, y):
                return x * y


            @app.task
            def xsum(numbers):
                return sum(numbers)
            """,
        )
        self.work(sys.executable, "-m", "penstock", "-A", "proj", "worker", "-Q", "hipri,lopri,celery", "-c", "3")
        out = self.run_program(
            """
            from penstock import chain, group
            from proj.tasks import add, mul, xsum

            print(add(2, 2), add.delay(2, 2).get(timeout=60))
            print(add.apply_async((2, 2), queue='lopri', countdown=1).get(timeout=60))
            res = add.delay(2, '2')
            print(type(res.get(propagate=False, timeout=60)).__name__, res.failed(), res.successful(), res.state)
            s1 = add.signature((2, 2), countdown=1)
            print(s1.delay().get(timeout=60), add.s(2).delay(8).get(timeout=60))
            s3 = add.s(2, 2, debug=True)
            print(s3.delay(debug=False).get(timeout=60))
            print(group(add.s(i, i) for i in range(10))().get(timeout=60))
            print(group(add.s(i) for i in range(10))(10).get(timeout=60))
            print(chain(add.s(4, 4) | mul.s(8))().get(timeout=60), chain(add.s(4) | mul.s(8))(4).get(timeout=60))
            print((add.s(4, 4) | mul.s(8))().get(timeout=60), xsum.delay([1, 2]).get(timeout=60))
            """
        )
        self.assertEqual(
            out,
            [
                "4 4",
                "4",
                "TypeError True False FAILURE",
                "4 10",
                "4",
                "[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]",
                "[10, 11, 12, 13, 14, 15, 16, 17, 18, 19]",
                "64 64",
                "64 3",
            ],
        )


if __name__ == "__main__":
    unittest.main()
