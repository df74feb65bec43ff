"""Workers as processes against a real broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import unittest
import urllib.request
from typing import Any

from penstock import Client, Context, Job, Penstock, Worker
from penstock._known import MOST_KNOWN, MOST_KNOWN_BYTES, Known
from penstock._types import Reply
from penstock.exceptions import RefusedError, TaskRevokedError, TimeLimitExceeded, TimeoutError

from .support import PATIENCE, BrokerCase, WorkerProcess, eventually, fresh

TASKS = """
    import asyncio, os, sys, time
    from penstock import Ignore, LeaseLost, Penstock, Reject, Retry, SoftTimeLimitExceeded, chain, signals
    from penstock.exceptions import Stopped

    app = Penstock("tests")
    app.conf.task_default_queue = {queue!r}

    @app.task(name="add")
    def add(x, y):
        return x + y

    @app.task(name="mul")
    def mul(x, y):
        return x * y

    @app.task(name="double")
    async def double(x):
        await asyncio.sleep(0.01)
        return 2 * x

    @app.task(name="flaky", bind=True, max_retries=8)
    def flaky(self, most):
        print("flaky", self.request.retries, flush=True)
        if self.request.retries < most:
            raise self.retry(exc=ValueError("not yet"), countdown=0.1)
        return self.request.retries

    @app.task(name="changed", bind=True)
    def changed(self, x):
        if x < 2:
            raise self.retry(args=[x + 1], countdown=1)
        return x

    @app.task(name="boom")
    def boom(text):
        raise LookupError(text)

    @app.task(name="ignores")
    def ignores():
        raise Ignore()

    @app.task(name="rejects")
    def rejects():
        raise Reject("not mine")

    @app.task(name="unjson")
    def unjson():
        return object()

    @app.task(name="soft", soft_time_limit=1)
    def soft():
        try:
            time.sleep(60)
        except SoftTimeLimitExceeded:
            return "soft"

    @app.task(name="hard", time_limit=1)
    def hard():
        time.sleep(60)

    @app.task(name="nap")
    def nap(seconds):
        print("nap begins", flush=True)
        time.sleep(seconds)
        print("nap ends", flush=True)
        return seconds

    @app.task(name="wait_for_loss")
    def wait_for_loss():
        print("waits", flush=True)
        try:
            end = time.monotonic() + 100
            while time.monotonic() < end:
                time.sleep(0.05)
        except LeaseLost:
            print("lease lost", flush=True)
            raise

    @app.task(name="await_loss")
    async def await_loss():
        print("waits", flush=True)
        try:
            await asyncio.sleep(100)
        except LeaseLost:
            print("lease lost", flush=True)
            raise

    @app.task(name="hold_gil")
    def hold_gil(seconds):
        import ctypes
        print("holds", flush=True)
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # a PyDLL call never lets go of the interpreter
        return "held"

    @app.task(name="die")
    def die():
        os.kill(os.getpid(), 9)

    @app.task(name="get_inside")
    def get_inside():
        return add.delay(1, 1).get()

    @signals.worker_ready.connect
    def ready(**_):
        print("worker_ready", flush=True)

    @signals.worker_shutting_down.connect
    def down(**_):
        print("worker_shutting_down", flush=True)

    @signals.task_retry.connect
    def retried(request=None, **_):
        print("task_retry", request.id, flush=True)
"""


class WorkerCase(BrokerCase):
    def start(self, queue: str, *args: str, source: str = TASKS, env: Any = None) -> WorkerProcess:
        worker = WorkerProcess(self, source.replace("{queue!r}", repr(queue)), "-Q", queue, *args, env=env)
        worker.says("is ready")
        return worker

    def app_for(self, queue: str) -> Penstock:
        app = Penstock("tests", set_as_current=False)
        app.conf.task_default_queue = queue
        app.conf.result_timeout = PATIENCE
        self.addCleanup(app.close)
        return app


class TasksTest(WorkerCase):
    """What a task may do, in each pool."""

    def run_in(self, pool: str, *args: str) -> None:
        q = fresh(pool)
        app = self.app_for(q)
        worker = self.start(q, "--pool", pool, "-c", "4", *args)
        send = app.send_task
        self.assertEqual(send("add", (2, 3)).get(), 5)
        self.assertEqual(send("double", (4,)).get(), 8)
        failed = send("boom", ("here",))
        with self.assertRaisesRegex(LookupError, "here"):
            failed.get()
        self.assertEqual(failed.state, "FAILURE")
        self.assertIn("LookupError: here", failed.traceback or "")
        self.assertEqual(send("flaky", (1,)).get(), 1)
        self.assertIsNone(send("ignores").get())
        self.assertIn("not mine", str(send("rejects").get(propagate=False)))
        self.assertIn("EncodeError", type(send("unjson").get(propagate=False)).__name__)
        self.assertIn("within a task", str(send("get_inside").get(propagate=False)))
        self.assertEqual(send("soft").get(), "soft") if pool in ("prefork", "solo") else None
        sig = app.signature
        self.assertEqual((sig("add", (4, 4)) | sig("mul", (8,)))().get(), 64)
        self.assertEqual(worker.stop(), 0)
        self.assertIn("worker_ready", worker.log())
        self.assertIn("worker_shutting_down", worker.log())
        self.assertIn("task_retry", worker.log())

    def test_prefork(self) -> None:
        self.run_in("prefork")

    def test_threads(self) -> None:
        self.run_in("threads")

    def test_solo(self) -> None:
        self.run_in("solo")

    def test_asyncio(self) -> None:
        self.run_in("asyncio")


class RulesTest(WorkerCase):
    def test_a_task_that_takes_too_long_is_ended(self) -> None:
        q = fresh()
        app = self.app_for(q)
        self.start(q, "-c", "1")
        with self.assertRaises(TimeLimitExceeded):
            app.send_task("hard").get()
        self.assertEqual(app.send_task("add", (1, 1)).get(), 2)

    def test_retries_beyond_those_of_the_queue_and_with_other_arguments(self) -> None:
        q = fresh()
        app = self.app_for(q)
        self.start(q, "-c", "1")
        changed = app.send_task("changed", (1,))
        self.assertEqual(app.send_task("flaky", (7,)).get(), 7)
        self.assertEqual(app.AsyncResult(changed.id + ".retry1", queue=q).get(), 2)

    def test_a_priority_is_higher_first(self) -> None:
        q = fresh()
        app = self.app_for(q)
        for n, priority in ((1, 0), (2, 9), (3, 5)):
            app.send_task("nap", (n / 1000,), priority=priority)
        worker = self.start(q, "-c", "1", "--pool", "solo")
        worker.says("nap ends", 3)
        order = [line for line in worker.log().splitlines() if "succeeded" in line]
        ids = [line.split("[")[-1].split("]")[0] for line in order]
        self.assertEqual([json.loads(self.client.manage.message(q, id)["Payload"])["args"][0] for id in ids], [0.002, 0.003, 0.001])

    def test_a_countdown_and_a_revoke(self) -> None:
        q = fresh()
        app = self.app_for(q)
        revoked = app.send_task("add", (1, 1), countdown=3600)
        queued = app.send_task("add", (1, 1))
        self.assertTrue(revoked.revoke())
        self.assertTrue(queued.revoke())
        self.assertEqual(app.AsyncResult(queued.id, queue=q).state, "REVOKED")
        with self.assertRaises(TaskRevokedError):
            app.AsyncResult(queued.id, queue=q).get()
        begun = time.monotonic()
        later = app.send_task("add", (2, 2), countdown=1.5)
        self.start(q, "-c", "1")
        self.assertEqual(later.get(), 4)
        self.assertGreaterEqual(time.monotonic() - begun, 1.5)

    def test_a_result_that_does_not_come_is_a_timeout(self) -> None:
        q = fresh()
        result = self.app_for(q).send_task("add", (1, 1))
        self.assertFalse(result.ready())
        with self.assertRaises(TimeoutError):
            result.get(timeout=0.2)

    def test_an_unknown_task_goes_back_and_another_worker_takes_it(self) -> None:
        q = fresh()
        sent = self.app_for(q).send_task("of-tomorrow", (1,))
        worker = self.start(q, "-c", "1", "--pool", "threads")
        worker.says("is not registered here")
        job = eventually(lambda: self.job_state(q, sent.id).get("GivenBack") and self.job_state(q, sent.id), "giving back")
        self.assertEqual((job["Status"], job["Attempts"]), ("QUEUED", 0))
        self.assertEqual(worker.stop(), 0)
        begun = time.monotonic()
        jobs = eventually(lambda: self.client.claim(q, wait=5), "the job, again")
        self.assertLess(time.monotonic() - begun, 30)
        self.assertEqual(jobs[0].message_id, sent.id)

    def test_what_is_no_job_is_a_dead_letter(self) -> None:
        q = fresh()
        self.app_for(q).client.enqueue(q, "add", [1, 1])
        sent = self.client.publish(q, "garbage")
        self.start(q, "--pool", "threads")
        eventually(lambda: self.job_state(q, sent.message_id).get("Status") == "DEAD", "the dead letter")

    def test_schedules_are_registered_once_whoever_starts(self) -> None:
        q = fresh()
        source = TASKS + f"""
    from penstock.schedules import crontab
    app.main = {q!r}
    app.conf.beat_schedule = {{
        "often": {{"task": "add", "schedule": 1.0, "args": (1, 1)}},
        "daily": {{"task": "add", "schedule": crontab(hour=3, minute=0), "args": (2, 2)}},
    }}

    @app.on_after_configure.connect
    def setup(sender, **_):
        sender.add_periodic_task(3600, mul.s(2, 3), name="hourly")
"""
        first = self.start(q, "--pool", "threads", source=source)
        second = self.start(q, "--pool", "threads", source=source)

        def listed() -> Any:
            return self.client.manage("GET", f"/channel/{q}/scheduled-messages?status=SCHEDULED")["Result"]

        eventually(lambda: len(listed()) == 3, "three schedules")
        third = self.start(q, "--pool", "threads", source=source)
        for worker in (first, second, third):
            worker.says("add[beat.") if worker is not third else None
            self.assertEqual(worker.stop(), 0)
        self.assertEqual(len(listed()), 3)
        self.assertTrue(all("beat." + q in link for link in listed()), listed())


class LeaseTest(WorkerCase):
    def lose(self, q: str) -> None:
        """End the lease of the job of q as a broker would that gave it to another worker."""
        (link,) = self.client.manage("GET", f"/channel/{q}/consumer/{q}/jobs?status=INFLIGHT")["Result"]
        id = link["ID"] if isinstance(link, dict) else link.rsplit("/", 1)[-1]
        headers = self.client._run(self.client._core.as_consumer(q, q))
        self.client.manage("POST", f"/channel/{q}/consumer/{q}/job/{id}", {"NextState": "DELIVERED"}, headers)

    def raised_in(self, pool: str, task: str) -> None:
        q = fresh(pool)
        self.app_for(q).send_task(task)
        worker = self.start(q, "--pool", pool, "-c", "2", "--lease", "10")
        worker.says("waits")
        self.lose(q)
        worker.says("lease lost")
        self.assertEqual(worker.stop(), 0)

    def test_lease_lost_is_raised_in_a_process(self) -> None:
        self.raised_in("prefork", "wait_for_loss")

    def test_lease_lost_is_raised_in_a_thread(self) -> None:
        self.raised_in("threads", "wait_for_loss")

    def test_lease_lost_is_raised_in_the_main_thread(self) -> None:
        self.raised_in("solo", "wait_for_loss")

    def test_lease_lost_is_raised_in_a_coroutine(self) -> None:
        self.raised_in("asyncio", "await_loss")

    def test_a_lease_is_renewed_while_c_code_holds_the_interpreter(self) -> None:
        q = fresh()
        result = self.app_for(q).send_task("hold_gil", (12,))
        self.start(q, "-c", "1", env={"PENSTOCK_LEASE": "5"})
        self.assertEqual(result.get(), "held")
        job = self.job_state(q, result.id)
        self.assertEqual((job["Attempts"], job.get("LeasesLost", 0)), (1, 0))

    def test_a_job_that_kills_its_process_comes_again_and_counts(self) -> None:
        q = fresh()
        sent = self.app_for(q).send_task("die")
        worker = self.start(q, "-c", "1", "--lease", "1")
        eventually(lambda: self.job_state(q, sent.id).get("LeasesLost", 0) >= 1, "the lost lease")
        self.assertEqual(self.app_for(q).send_task("add", (1, 1)).get(), 2)
        self.assertEqual(worker.stop(), 0)

    def test_visibility_timeout_is_the_length_of_a_lease(self) -> None:
        q = fresh()
        source = TASKS + '    app.conf.broker_transport_options = {"visibility_timeout": 777}\n'
        sent = self.app_for(q).send_task("nap", (60,))
        worker = self.start(q, "-c", "1", source=source)
        worker.says("nap begins")
        worker.signal(signal.SIGKILL)
        worker.wait()
        self.assertEqual(self.job_state(q, sent.id)["Status"], "INFLIGHT")


class StopTest(WorkerCase):
    def test_a_stop_finishes_what_runs_and_the_rest_is_free(self) -> None:
        q = fresh()
        app = self.app_for(q)
        sent = [app.send_task("nap", (2,)) for _ in range(4)]
        worker = self.start(q, "-c", "1")
        worker.says("nap begins")
        worker.signal(signal.SIGTERM)
        worker.says("the worker stops")
        jobs = []
        while len(jobs) < 3:
            some = self.client.claim(q, limit=4, wait=20)
            self.assertTrue(some, "the other jobs")
            jobs += some
        self.assertEqual(len(jobs), 3)
        self.assertTrue(all(job.attempt == 1 for job in jobs))
        self.assertEqual(worker.wait(), 0)
        self.assertIn("nap ends", worker.log())
        self.assertEqual(sum(self.job_state(q, one.id)["Status"] == "DELIVERED" for one in sent), 1)

    def second_signal(self, pool: str) -> None:
        q = fresh(pool)
        sent = self.app_for(q).send_task("nap", (100,))
        worker = self.start(q, "-c", "1", "--pool", pool)
        worker.says("nap begins")
        worker.signal(signal.SIGTERM)
        worker.says("the worker stops")
        begun = time.monotonic()
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0)
        self.assertLess(time.monotonic() - begun, 30)
        job = self.job_state(q, sent.id)
        self.assertEqual((job["Status"], job["Attempts"]), ("QUEUED", 0), worker.log())

    def test_a_second_signal_gives_the_job_of_a_process_back(self) -> None:
        self.second_signal("prefork")

    def test_a_second_signal_gives_the_job_of_a_thread_back(self) -> None:
        self.second_signal("threads")

    def test_a_second_signal_gives_the_job_of_the_main_thread_back(self) -> None:
        self.second_signal("solo")

    def test_an_idle_worker_ends_soon(self) -> None:
        worker = self.start(fresh(), "--pool", "threads")
        begun = time.monotonic()
        self.assertEqual(worker.stop(), 0)
        self.assertLess(time.monotonic() - begun, 15, "it does not wait for the end of its claim")

    def test_a_killed_worker_leaves_no_process(self) -> None:
        q = fresh()
        self.app_for(q).send_task("nap", (100,))
        worker = self.start(q, "-c", "2")
        worker.says("nap begins")
        worker.signal(signal.SIGKILL)
        worker.wait()
        if sys.platform.startswith("linux"):
            eventually(lambda: not _with_module(worker.module), "the end of the processes")


def _with_module(module: str) -> "list[str]":
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if module.encode() in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


class HealthTest(WorkerCase):
    def test_healthz_is_200_while_the_queues_are_asked(self) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{held.getsockname()[1]}"
        q = fresh()
        self.start(q, "--pool", "threads", "--health", address)
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=PATIENCE) as answer:
            shown = json.loads(answer.read())
        self.assertEqual((answer.status, shown["queues"]), (200, [q]))

        def workers() -> Any:
            try:
                return self.client.manage.workers(q)
            except RefusedError as error:  # the worker has not made its queue yet
                self.assertEqual(error.status, 404)
                return None

        (listed,) = eventually(workers, "the worker")
        self.assertIn("add", listed["Tasks"])


class LowLevelTest(BrokerCase):
    def test_a_worker_serves_several_queues_with_few_slots(self) -> None:
        queues, seen = [fresh() for _ in range(3)], []

        def take(job: Context) -> str:
            seen.append(job.args[0])
            if len(seen) == 30:
                worker.stop()
            return f"did {job.args[0]}"

        worker = Worker(Client(), queues, {"*": take}, concurrency=2, wait=1)
        for i in range(30):
            self.client.enqueue(queues[i % 3], "any", [i])
        self.assertEqual(worker.run(signals=False), 0)
        self.assertEqual(sorted(seen), list(range(30)))
        self.assertEqual(worker.counts["done"], 30)

    def worker_of(self, queue: str, handlers: Any) -> Worker:
        worker = Worker(Client(), queue, handlers, concurrency=2, wait=1, results=True)
        self.addCleanup(worker.client.close)
        return worker

    def test_a_result_goes_along_with_the_report_and_a_large_one_before_it(self) -> None:
        q, posted = fresh(), []
        self.client.enqueue(q, "first")
        self.client.manage.put_consumer(q, q, responses="store", response_max_bytes=1 << 20)
        results = {"text": "42 €", "null": None, "large": "x" * 70_000}

        def take(job: Context) -> Any:
            return results.get(job.task)

        worker = self.worker_of(q, {"*": take})
        core, post = worker.client._core, worker.client._core.respond

        def respond(*args: Any) -> Any:
            posted.append(args)
            return post(*args)

        core.respond = respond  # type: ignore[method-assign]
        thread = threading.Thread(target=worker.run, kwargs={"signals": False})
        thread.start()
        try:
            for task, result in results.items():
                id = self.client.enqueue(q, task).message_id
                (got,) = self.client.responses(q, id, wait=PATIENCE)
                self.assertEqual((got.received, got.json(), got.content_type), (True, result, "application/json"))
                eventually(lambda: self.job_state(q, id)["Status"] == "DELIVERED", "the end of the job")
        finally:
            worker.stop()
            thread.join()
        self.assertEqual(len(posted), 1, "only what is too large for a report is posted")

    def test_a_job_is_done_where_its_queue_keeps_no_results(self) -> None:
        q = fresh()
        ids = [self.client.enqueue(q, "any", [i]).message_id for i in range(4)]
        self.client.manage.put_consumer(q, q, responses="off")
        seen = []

        def take(job: Context) -> str:
            seen.append(job.message_id)
            if len(seen) == 4:
                worker.stop()
            return "nobody reads it"

        worker = self.worker_of(q, {"*": take})
        with self.assertLogs("penstock.worker", "WARNING") as said:
            self.assertEqual(worker.run(signals=False), 0)
        self.assertIn("keeps no results", "".join(said.output))
        self.assertEqual({self.job_state(q, id)["Status"] for id in ids}, {"DELIVERED"})
        self.assertEqual(sorted(seen), sorted(ids))


class KnownTest(unittest.TestCase):
    """What a worker remembers of the jobs that it has done."""

    def job(self, id: str, attempt: int = 1, replay: str = "") -> Job:
        return Job("q", "q", id, "lease", attempt, "m", b"", {}, replay=replay)

    def test_a_job_that_was_done_is_known_until_the_broker_knows_it(self) -> None:
        known = Known()
        known.add(self.job("a"), Reply(b"42"))
        self.assertIsNone(known.of(self.job("a")), "it was redriven")
        self.assertIsNone(known.of(self.job("a", 2, "replay")))
        self.assertIsNone(known.of(self.job("b", 2)))
        done = known.of(self.job("a", 2))
        self.assertEqual(done and done.reply, Reply(b"42"))
        known.taken("a")
        self.assertIsNone(known.of(self.job("a", 2)))

    def test_the_memory_is_bounded_in_jobs_and_bytes(self) -> None:
        known = Known()
        for i in range(2 * MOST_KNOWN):
            known.add(self.job(f"large-{i}"), Reply(b"x" * (64 << 10)))
            known.refused(f"large-{i}")
            known.add(self.job(f"small-{i}"), None)
            known.refused(f"small-{i}")
            self.assertLessEqual(known._bytes, MOST_KNOWN_BYTES)
            self.assertLessEqual(len(known._done), MOST_KNOWN)
        self.assertIsNone(known.of(self.job("large-0", 2)))
        self.assertIsNotNone(known.of(self.job(f"small-{2 * MOST_KNOWN - 1}", 2)))
        self.assertEqual(known._bytes, sum(done.size for done in known._done.values()))


class IgnoredTest(WorkerCase):
    def test_a_task_whose_result_is_ignored_leaves_no_exchange_open(self) -> None:
        q = fresh()
        app = self.app_for(q)
        self.start(q, "--pool", "threads")
        ids = [app.send_task("add", (1, 2), ignore_result=True).id, app.send_task("changed", (0,)).id]
        for id in ids:
            path = f"/channel/{q}/message/{id}/responses"
            eventually(lambda: self.client.manage("GET", path)["Complete"], "the end of the exchange")
            (entry,) = self.client.manage("GET", path)["Result"]
            self.assertEqual((entry["State"], entry["Body"]), ("RESPONSE_RECEIVED_FROM_RECEIVER", "null"))


if __name__ == "__main__":
    unittest.main()
