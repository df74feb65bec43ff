"""The broker in memory."""

from __future__ import annotations

import time
import unittest
from typing import Any, List

from penstock import Penstock, TimeoutError, chain, crontab, group
from penstock.exceptions import LeaseLost
from penstock.testing import Broker


class TestingTest(unittest.TestCase):
    def setUp(self) -> None:
        self.broker, self.app = Broker(), Penstock("testing", broker="http://127.0.0.1:1")
        self.ran: List[Any] = []

        @self.app.task
        def add(x: int, y: int) -> int:
            self.ran.append((x, y))
            return x + y

        @self.app.task(bind=True, max_retries=2)
        def flaky(task: Any) -> int:
            self.ran.append(task.request.retries)
            if task.request.retries < 2:
                raise task.retry(countdown=3600)
            return task.request.retries  # type: ignore[no-any-return]

        @self.app.task
        def boom() -> None:
            raise ZeroDivisionError("zero")

        self.add, self.flaky, self.boom = add, flaky, boom
        use = self.broker.use(self.app)
        use.__enter__()
        self.addCleanup(use.__exit__, None, None, None)

    def test_jobs_run_when_the_test_says_so(self) -> None:
        result = self.add.delay(2, 3)
        with self.assertRaises(TimeoutError):
            result.get()
        self.assertEqual((result.state, self.broker.work(self.app), result.get()), ("PENDING", 1, 5))

    def test_hours_pass_at_once(self) -> None:
        begun = time.monotonic()
        later, again = self.add.apply_async((1, 1), countdown=7200), self.flaky.delay()
        self.broker.run_for(self.app, 7199)
        self.assertFalse(later.ready())
        self.broker.run_for(self.app, 1)
        self.assertEqual((later.get(), again.get()), (2, 2))
        self.assertEqual(self.ran, [0, 1, 2, (1, 1)])  # the older message of two that are due is first
        self.assertLess(time.monotonic() - begun, 5)

    def test_chains_groups_failures_and_revokes(self) -> None:
        chained, grouped = chain(self.add.s(1, 2), self.add.s(10))(), group(self.add.s(i, i) for i in range(3))()
        failed, revoked = self.boom.delay(), self.add.delay(9, 9)
        self.assertTrue(revoked.revoke())
        self.broker.work(self.app)
        self.assertEqual((chained.get(), grouped.get(), revoked.state), (13, [0, 2, 4], "REVOKED"))
        self.assertRaises(ZeroDivisionError, failed.get)
        self.assertEqual(len(self.broker.dead_letters("celery")), 2)

    def test_schedules_are_sent(self) -> None:
        self.app.conf.beat_schedule = {
            "daily": {"task": self.add.name, "schedule": crontab(hour=3, minute=30), "args": (1, 2)},
            "often": {"task": self.add.name, "schedule": 8 * 3600, "args": (3, 4)},
        }
        self.app.register_schedules()
        self.app.register_schedules()
        self.broker.run_for(self.app, 24 * 3600)
        self.assertEqual(sorted(self.ran), [(1, 2), (3, 4), (3, 4), (3, 4)])

    def test_a_lease_that_ends_is_lost(self) -> None:
        client = self.broker.client()
        client.enqueue("q", "t", priority=1)
        urgent = client.enqueue("q", "t", priority=2)
        (job,) = client.claim("q", lease=10)
        self.assertEqual(job.message_id, urgent.message_id)
        self.broker.advance(11)
        self.assertRaises(LeaseLost, client.ack, job)
        self.assertEqual(self.broker.work({"t": lambda job: None}), 2)
        self.assertEqual(self.broker.waiting("q"), [])


if __name__ == "__main__":
    unittest.main()
