"""What the tests share: the broker at PENSTOCK_URL, queues of their own, workers as processes."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from typing import Any, Callable, Optional

from penstock import Client

PATIENCE = float(os.environ.get("TEST_PATIENCE", "120"))  # seconds for what must happen at some time
_numbers = itertools.count()


def fresh(name: str = "q") -> str:
    """A name that no other test has."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def eventually(look: Callable[[], Any], what: str) -> Any:
    """Wait until ``look`` returns something true, and return it."""
    end = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"never came: {what}")
        time.sleep(0.02)


class BrokerCase(unittest.TestCase):
    """A test with a broker."""

    def setUp(self) -> None:
        url = os.environ.get("PENSTOCK_URL")
        if not url:
            self.fail("set PENSTOCK_URL to the address of a broker with open management")
        self.url = url
        self.client = Client()
        self.addCleanup(self.client.close)

    def job_state(self, queue: str, message_id: str) -> "dict[str, Any]":
        """The job of a message, empty while there is none."""
        from penstock import RefusedError

        try:
            jobs = self.client.manage.message(queue, message_id)["Jobs"]
        except RefusedError:
            return {}
        return jobs[0] if jobs else {}


class WorkerProcess:
    """``python -m penstock worker`` on a module of its own folder."""

    def __init__(self, case: BrokerCase, source: str, *args: str, module: str = "", env: "Optional[dict[str, str]]" = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="penstock-worker-")
        case.addCleanup(shutil.rmtree, self.folder, True)
        self.module = module or f"tasks_{os.getpid()}_{next(_numbers)}"
        with open(os.path.join(self.folder, self.module + ".py"), "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(source))
        self.log_path = os.path.join(self.folder, "log")
        self._log = open(self.log_path, "wb")
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "penstock", "worker", "-A", self.module, *args]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdout=self._log, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(env or {})},
        )  # fmt: skip
        case.addCleanup(self.end)

    def log(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def says(self, text: str, times: int = 1) -> None:
        """Wait until the log has a text."""

        def look() -> bool:
            if self.log().count(text) >= times:
                return True
            if self.process.poll() is not None and self.log().count(text) < times:
                raise AssertionError(f"the worker ended with {self.process.returncode} and never said {text!r}:\n{self.log()}")
            return False

        try:
            eventually(look, repr(text))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = PATIENCE) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end:\n{self.log()}") from None

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()
