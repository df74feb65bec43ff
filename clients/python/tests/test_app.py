"""The app in Celery's form, without a broker: options, signatures, schedules, eager tasks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import types
import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, List

import penstock
from penstock import (
    Celery,
    ChordNotSupported,
    Ignore,
    NotSupported,
    Penstock,
    Reject,
    chain,
    chord,
    crontab,
    group,
    shared_task,
    signals,
    signature,
)
from penstock.exceptions import ConfigurationError, ImproperlyConfigured, MaxRetriesExceededError, NotRegistered
from penstock.result import error_of, error_text
from penstock.schedules import schedule


def eager(**conf: Any) -> Penstock:
    app = Penstock("eager", broker="http://127.0.0.1:1")
    app.conf.task_always_eager = True
    app.conf.update(conf)
    return app


class OptionsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.app = Penstock("app", broker="http://127.0.0.1:1")

        @self.app.task
        def add(x: int, y: int) -> int:
            return x + y

        self.add = add

    def test_a_misspelt_option_is_named(self) -> None:
        for call in (
            lambda: self.add.apply_async((1, 2), contdown=3),
            lambda: self.add.s(1, 2).apply_async(contdown=3),
            lambda: self.add.s(1, 2).set(contdown=3),
            lambda: self.add.apply_async_on_commit((1, 2), contdown=3),
            lambda: group(self.add.s(1, 2)).apply_async(contdown=3),
            lambda: chain(self.add.s(1, 2)).apply_async(contdown=3),
            lambda: self.app.send_task("x", contdown=3),
            lambda: self.app.task(contdown=3),
        ):
            with self.assertRaisesRegex(Exception, "contdown"):
                call()
        with self.assertRaisesRegex(TypeError, "did you mean 'countdown'"):
            self.add.apply_async((1, 2), contdown=3)

    def test_what_penstock_does_not_have_is_refused_by_name_with_the_reason(self) -> None:
        add = self.add
        for name, call in {
            "chord": lambda: chord([add.s(1, 2)])(add.s(3)),
            "link": lambda: add.apply_async((1, 2), link=add.s(3)),
            "link_error": lambda: add.apply_async((1, 2), link_error=add.s(3)),
            "control": lambda: self.app.control.inspect(),
            "pickle": lambda: add.apply_async((1, 2), serializer="pickle"),
            "rate_limit": lambda: self.app.task(rate_limit="10/m")(lambda: None),
            "chunks": lambda: add.chunks([(1, 2)], 10),
            "routing_key": lambda: add.apply_async((1, 2), routing_key="a.b"),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(NotSupported, name):
                call()
        for conf in ({"task_serializer": "pickle"}, {"accept_content": ["json", "pickle"]}, {"result_serializer": "yaml"}):
            with self.subTest(conf), self.assertRaises(NotSupported):
                self.app.conf.update(conf)
        with self.assertRaises(ChordNotSupported):
            chain(group(add.s(1, 1), add.s(2, 2)), add.s(3))
        with self.assertRaises(ChordNotSupported):
            group(add.s(1, 1)) | add.s(3)

    def test_a_call_with_wrong_arguments_fails_where_it_is_made(self) -> None:
        with self.assertRaisesRegex(TypeError, "missing a required argument: 'y'"):
            self.add.delay(1)

    def test_a_setting_that_does_not_exist_is_named(self) -> None:
        with self.assertRaisesRegex(ImproperlyConfigured, "task_always_eager"):
            self.app.conf.task_always_eagr = True
        self.app.conf.result_expires = 3600  # Celery has it, and it means nothing here
        self.app.conf.my_own = 1
        self.assertEqual(self.app.conf.my_own, 1)

    def test_a_task_is_a_function_and_has_a_name(self) -> None:
        self.assertEqual(self.add(2, 3), 5)
        self.assertEqual(self.add.name, f"{__name__}.add")
        self.assertIs(self.app.tasks[self.add.name], self.add)
        with self.assertRaises(NotRegistered):
            self.app.tasks["nope"]

    def test_names_are_where_celery_has_them(self) -> None:
        import penstock.exceptions
        import penstock.result
        import penstock.schedules
        import penstock.signals
        from penstock.utils.log import get_task_logger

        self.assertIs(penstock.schedules.crontab, penstock.crontab)
        self.assertIs(penstock.result.AsyncResult, penstock.AsyncResult)
        self.assertIs(penstock.exceptions.LeaseLost, penstock.LeaseLost)
        self.assertIs(Celery, Penstock)
        self.assertEqual(get_task_logger("x").name, "x")
        for name in ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry", "worker_ready"):
            self.assertIsInstance(getattr(penstock.signals, name), penstock.signals.Signal)

    def test_another_brokers_address_needs_penstock_url(self) -> None:
        before = os.environ.pop("PENSTOCK_URL", None)
        self.addCleanup(lambda: os.environ.update(PENSTOCK_URL=before) if before else os.environ.pop("PENSTOCK_URL"))
        app = Celery("tasks", broker="pyamqp://guest:secret@localhost//")
        with self.assertRaisesRegex(ImproperlyConfigured, "PENSTOCK_URL") as raised:
            app.client
        self.assertNotIn("secret", str(raised.exception))
        os.environ["PENSTOCK_URL"] = "http://127.0.0.1:7"
        self.assertEqual(app.client.url, "http://127.0.0.1:7")

    def test_settings_come_from_modules_objects_and_djangos_namespace(self) -> None:
        module = types.ModuleType("a_celeryconfig")
        module.task_default_queue, module.CELERY_TIMEZONE = "here", "Europe/Warsaw"  # type: ignore[attr-defined]
        sys.modules["a_celeryconfig"] = module
        self.addCleanup(sys.modules.pop, "a_celeryconfig")
        self.app.config_from_object("a_celeryconfig")
        self.assertEqual((self.app.conf.task_default_queue, self.app.conf.timezone), ("here", "Europe/Warsaw"))

        class Settings:
            CELERY_TASK_ALWAYS_EAGER = True
            CELERY_BROKER_URL = "http://b:1"
            DEBUG = True

        self.app.config_from_object(Settings, namespace="CELERY")
        self.assertEqual((self.app.conf.task_always_eager, self.app.conf.broker_url), (True, "http://b:1"))

    def test_a_queue_comes_from_the_call_a_route_the_task_or_the_default(self) -> None:
        @self.app.task(queue="own")
        def owned() -> None:
            pass

        self.assertEqual(self.app._queue_of(self.add), "celery")
        self.assertEqual(self.app._queue_of(owned), "own")
        self.app.conf.task_routes = {f"{__name__}.ow*": {"queue": "routed"}}
        self.assertEqual(self.app._queue_of(owned), "routed")
        queue, message = owned._message([], {}, queue="called", priority=4)
        self.assertEqual((queue, message.priority), ("called", 4))

    def test_a_job_is_the_json_that_all_clients_read(self) -> None:
        _, message = self.add._message([1], {"y": 2}, task_id="id")
        self.assertEqual(json.loads(message.payload), {"task": self.add.name, "args": [1], "kwargs": {"y": 2}, "meta": {}})
        self.assertEqual((message.message_id, message.task), ("id", self.add.name))

    def test_expires_counts_from_now_also_with_a_countdown(self) -> None:
        _, message = self.add._message([1, 2], {}, countdown=10, expires=30)
        self.assertEqual((message.delay, message.ttl), (10, 20))
        _, message = self.add._message([1, 2], {}, eta=datetime.now(timezone.utc) - timedelta(hours=1))
        self.assertIsNone(message.at)


class EagerTest(unittest.TestCase):
    def test_a_task_runs_at_once(self) -> None:
        app, seen = eager(), []

        @app.task(bind=True)
        def add(self: Any, x: int, y: int = 0) -> int:
            seen.append((self.request.id, self.request.is_eager))
            return x + y

        result = add.apply_async((1,), {"y": 2}, task_id="here", queue="q")
        self.assertEqual((result.get(), result.state, seen), (3, "SUCCESS", [("here", True)]))
        self.assertEqual(chain(add.s(1) | add.s(10))().get(), 11)
        self.assertEqual(group(add.s(i) for i in range(3))().get(), [0, 1, 2])

    def test_penstock_eager_is_a_setting_of_the_environment(self) -> None:
        os.environ["PENSTOCK_EAGER"] = "1"
        self.addCleanup(os.environ.pop, "PENSTOCK_EAGER")
        app = Penstock("e", broker="http://127.0.0.1:1")
        self.assertEqual(app.task(lambda: 7, name="x").delay().get() if False else app.task(name="x")(lambda: 7).delay().get(), 7)

    def test_a_task_that_fails_says_so(self) -> None:
        app = eager()

        @app.task
        def boom() -> None:
            raise KeyError("k")

        result = boom.delay()
        self.assertTrue(result.failed())
        self.assertIsInstance(result.get(propagate=False), KeyError)
        self.assertRaises(KeyError, result.get)
        app.conf.task_eager_propagates = True
        self.assertRaises(KeyError, boom.delay)

    def test_retries_end_with_the_error_or_max_retries_exceeded(self) -> None:
        app, tries = eager(), []

        @app.task(bind=True, max_retries=2)
        def again(self: Any) -> None:
            tries.append(self.request.retries)
            raise self.retry(countdown=1)

        self.assertIsInstance(again.delay().result, MaxRetriesExceededError)
        self.assertEqual(tries, [0, 1, 2])

        @app.task(autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,), retry_backoff=True, max_retries=3)
        def auto(kind: str) -> None:
            tries.append(kind)
            raise OSError("x") if kind == "os" else FileNotFoundError("y")

        tries.clear()
        self.assertIsInstance(auto.delay("os").result, OSError)
        self.assertEqual(len(tries), 4)
        tries.clear()
        self.assertIsInstance(auto.delay("file").result, FileNotFoundError)
        self.assertEqual(len(tries), 1)

    def test_ignore_and_reject_are_no_failures(self) -> None:
        app = eager()

        @app.task
        def odd(error: Any = None) -> None:
            raise Ignore() if error is None else Reject("no", requeue=False)

        self.assertFalse(odd.delay().failed())
        self.assertFalse(odd.delay(1).failed())

    def test_coroutines_are_tasks_also_inside_a_loop(self) -> None:
        app = eager()

        @app.task
        async def double(x: int) -> int:
            await asyncio.sleep(0)
            return 2 * x

        async def view() -> Any:
            return double.delay(4).get()

        self.assertEqual(double.delay(3).get(), 6)
        self.assertEqual(asyncio.run(view()), 8)

    def test_signals_and_hooks_come_in_order(self) -> None:
        app, seen = eager(), []  # type: ignore[var-annotated]

        class Base(penstock.Task):  # type: ignore[type-arg]
            def on_success(self, retval: Any, *_: Any) -> None:
                seen.append(("on_success", retval))

            def on_failure(self, exc: Any, *_: Any) -> None:
                seen.append(("on_failure", str(exc)))

        @app.task(base=Base)
        def work(fail: bool) -> int:
            if fail:
                raise ValueError("bad")
            return 1

        def hear(signal: Any, **_: Any) -> None:
            seen.append((signal.name, None))

        for one in (signals.task_prerun, signals.task_postrun, signals.task_success, signals.task_failure):
            one.connect(hear, sender=work)
            self.addCleanup(one.disconnect, hear, sender=work)
        work.delay(False)
        self.assertEqual([n for n, _ in seen], ["task_prerun", "on_success", "task_success", "task_postrun"])
        seen.clear()
        work.delay(True)
        self.assertEqual([n for n, _ in seen], ["task_prerun", "on_failure", "task_failure", "task_postrun"])

    def test_a_shared_task_belongs_to_the_current_app(self) -> None:
        @shared_task(bind=True, max_retries=7)
        def shared(self: Any) -> str:
            return str(self.app.main)

        first = eager()
        self.assertEqual(shared.delay().get(), "eager")
        self.assertIn(shared.name, first.tasks)
        second = Penstock("second", broker="http://127.0.0.1:1")
        second.conf.task_always_eager = True
        self.assertEqual(shared.delay().get(), "second")
        self.assertEqual(shared.max_retries, 7)

    def test_on_commit_waits_for_the_hook(self) -> None:
        app, waiting, ran = eager(), [], []  # type: ignore[var-annotated]
        app.conf.on_commit = waiting.append

        @app.task
        def work(n: int) -> None:
            ran.append(n)

        work.delay_on_commit(1)
        work.apply_async_on_commit((2,), countdown=1)
        self.assertEqual(ran, [])
        for call in waiting:
            call()
        self.assertEqual(ran, [1, 2])


class SignatureTest(unittest.TestCase):
    def test_arguments_are_put_in_front_and_immutable_ones_stay(self) -> None:
        app = eager()

        @app.task
        def sub(x: int, y: int, debug: bool = False) -> Any:
            return x - y, debug

        self.assertEqual(sub.s(2).delay(8).get(), (6, False))
        self.assertEqual(sub.si(2, 1).delay(8).get(), (1, False))
        self.assertEqual(sub.s(2, debug=True).delay(8, debug=False).get(), (6, False))
        self.assertEqual(sub.signature((1, 2), countdown=10).options, {"countdown": 10})
        self.assertEqual(signature(json.loads(json.dumps(sub.s(1, 2))), app=app).delay().get(), (-1, False))
        self.assertEqual(sub.s(3, 1)(), (2, False))


class ErrorTest(unittest.TestCase):
    def test_an_exception_comes_back_as_what_it_was_if_its_class_is_known(self) -> None:
        for error in (ValueError("a: b"), KeyError("k"), ZeroDivisionError(), ConfigurationError("c")):
            back = error_of(error_text(error))
            self.assertEqual((type(back), str(back)), (type(error), str(error)))
        other = error_of("some.module.Odd: text")
        self.assertEqual((type(other).__name__, str(other)), ("Odd", "text"))
        for text in ("os.system: rm", "builtins.exec: 1", "SystemExit: 1", "not an error at all", ""):
            self.assertIsInstance(error_of(text), penstock.exceptions.TaskError)


class ScheduleTest(unittest.TestCase):
    def test_crontab_is_five_fields(self) -> None:
        cases: List[Any] = [
            (crontab(), "cron:* * * * *"),
            (crontab(minute=0, hour="*/3"), "cron:0 */3 * * *"),
            (crontab(minute="0,15-17", hour=[7, 19]), "cron:0,15,16,17 7,19 * * *"),
            (crontab(minute=30, hour=7, day_of_week="mon-fri"), "cron:30 7 * * 1,2,3,4,5"),
            (crontab(0, 0, day_of_week="sat-mon"), "cron:0 0 * * 0,1,6"),
            (crontab(0, 0, day_of_week="sunday"), "cron:0 0 * * 0"),
            (crontab(0, 0, day_of_week=7), "cron:0 0 * * 0"),
            (crontab(0, 0, day_of_month="1", month_of_year="jan,7"), "cron:0 0 1 1,7 *"),
            (crontab(minute="10-50/20"), "cron:10,30,50 * * * *"),
        ]
        for made, text in cases:
            self.assertEqual(made.recurrence("UTC"), text)
        self.assertEqual(crontab(0, 7).recurrence("Europe/Warsaw"), "cron:TZ=Europe/Warsaw 0 7 * * *")

    def test_what_is_no_crontab_is_refused(self) -> None:
        for named in ({"minute": 60}, {"hour": "25"}, {"minute": "x"}, {"day_of_week": "foo"}, {"day_of_month": 0}, {"minute": None}):
            with self.subTest(named), self.assertRaises(ConfigurationError):
                crontab(**named)
        with self.assertRaisesRegex(NotSupported, "day_of_month and day_of_week"):
            crontab(day_of_month=1, day_of_week=1)

    def test_an_interval_is_a_recurrence(self) -> None:
        made = schedule(timedelta(minutes=2))
        self.assertEqual(made.recurrence("UTC", datetime(2026, 1, 1)), "R/2026-01-01T00:02:00Z/PT120S")
        self.assertTrue(made.same("R/2020-01-01T00:00:00Z/PT120S", "UTC"))
        self.assertFalse(made.same("R/2020-01-01T00:00:00Z/PT60S", "UTC"))
        with self.assertRaises(ConfigurationError):
            schedule(0.1)

    def test_periodic_tasks_have_names_of_their_own(self) -> None:
        app = eager()

        @app.task
        def say(x: str) -> None:
            pass

        app.add_periodic_task(10.0, say.s("hello"), name="every 10")
        app.add_periodic_task(30.0, say.s("world"), expires=10)
        self.assertEqual(list(app.conf.beat_schedule), ["every 10", f"{__name__}.say('world')"])
        with self.assertRaisesRegex(Exception, "expirse"):
            app.add_periodic_task(30.0, say.s("world"), expirse=10)


if __name__ == "__main__":
    unittest.main()
