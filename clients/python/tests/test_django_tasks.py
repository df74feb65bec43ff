"""The backend of django.tasks, on the interface that Django 6.0 documents: Debian's Django is older, so
the test brings the few classes of it that the backend uses."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
import types
import unittest
from datetime import datetime
from typing import Any, Dict, List, Optional

from penstock.testing import START, Broker


@dataclasses.dataclass(frozen=True)
class Task:
    func: Any
    priority: int = 0
    queue_name: str = "default"
    backend: str = "default"
    run_after: Optional[datetime] = None
    takes_context: bool = False

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["django.tasks"].task_backends[self.backend].enqueue(self, args, kwargs)  # type: ignore[attr-defined]


class TaskResultStatus(enum.Enum):
    READY, RUNNING, FAILED, SUCCESSFUL = "READY", "RUNNING", "FAILED", "SUCCESSFUL"


@dataclasses.dataclass(frozen=True)
class TaskResult:
    task: Any
    id: str
    status: TaskResultStatus
    enqueued_at: Any
    started_at: Any
    finished_at: Any
    last_attempted_at: Any
    args: List[Any]
    kwargs: Dict[str, Any]
    backend: str
    errors: List[Any]
    worker_ids: List[str]
    _return_value: Any = dataclasses.field(init=False, default=None)


@dataclasses.dataclass(frozen=True)
class TaskContext:
    task_result: Any


@dataclasses.dataclass(frozen=True)
class TaskError:
    exception_class_path: str
    traceback: str


class BaseTaskBackend:
    def __init__(self, alias: str, params: Dict[str, Any]) -> None:
        self.alias = alias
        self.queues = set(params.get("QUEUES", ["default"]))

    def validate_task(self, task: Any) -> None:
        if task.queue_name not in self.queues:
            raise ValueError("no such queue")


class TaskResultDoesNotExist(Exception):
    pass


seen: List[Any] = []


def _mail(to: str, fail: bool = False) -> str:
    seen.append(to)
    if fail:
        raise ConnectionError("refused")
    return f"sent to {to}"


def _tell(context: Any, n: int) -> Any:
    return [context.task_result.status.value, n]


mail, tell = Task(_mail), Task(_tell, takes_context=True)
_mail.__qualname__, _tell.__qualname__ = "mail", "tell"  # as the decorator leaves them


class DjangoTasksTest(unittest.TestCase):
    def setUp(self) -> None:
        made: Dict[str, Dict[str, Any]] = {
            "django.tasks": {"task_backends": {}},
            "django.tasks.base": {
                "Task": Task, "TaskResult": TaskResult, "TaskResultStatus": TaskResultStatus, "TaskContext": TaskContext,
                "TaskError": TaskError,
            },
            "django.tasks.backends": {},
            "django.tasks.backends.base": {"BaseTaskBackend": BaseTaskBackend},
            "django.tasks.exceptions": {"TaskResultDoesNotExist": TaskResultDoesNotExist},
        }  # fmt: skip
        for name, members in made.items():
            module = types.ModuleType(name)
            module.__dict__.update(members)
            before = sys.modules.get(name)
            sys.modules[name] = module
            self.addCleanup(lambda n=name, b=before: sys.modules.pop(n) if b is None else sys.modules.update({n: b}))
        sys.modules.pop("penstock.django.tasks", None)
        tasks: Any = importlib.import_module("penstock.django.tasks")
        self.addCleanup(sys.modules.pop, "penstock.django.tasks", None)
        self.backend = tasks.PenstockBackend("default", {"QUEUES": ["default"], "OPTIONS": {"url": "http://127.0.0.1:1"}})
        made["django.tasks"]["task_backends"]["default"] = self.backend
        self.app, self.broker = tasks.app, Broker()
        use = self.broker.use(self.app)
        use.__enter__()
        self.addCleanup(use.__exit__, None, None, None)
        seen.clear()

    def test_a_task_runs_and_its_result_is_found_by_its_id(self) -> None:
        sent = mail.enqueue("ann")
        self.assertEqual((sent.status, self.backend.get_result(sent.id).status.value), (TaskResultStatus.READY, "READY"))
        self.broker.work(self.app)
        found = self.backend.get_result(sent.id)
        self.assertEqual((found.status.value, found._return_value, found.args), ("SUCCESSFUL", "sent to ann", ["ann"]))

    def test_a_task_that_fails_says_with_what(self) -> None:
        sent = mail.enqueue("ann", fail=True)
        self.broker.work(self.app)
        found = self.backend.get_result(sent.id)
        self.assertEqual(found.status.value, "FAILED")
        self.assertEqual(found.errors[0].exception_class_path, "builtins.ConnectionError")

    def test_priorities_and_times_are_the_brokers(self) -> None:
        later = dataclasses.replace(mail, run_after=datetime.fromisoformat("2100-01-01T00:00:00+00:00"))
        result = later.enqueue("later")
        dataclasses.replace(mail, priority=-50).enqueue("low")
        dataclasses.replace(mail, priority=50).enqueue("high")
        mail.enqueue("usual")
        self.broker.work(self.app)
        self.assertEqual(seen, ["high", "usual", "low"])
        self.assertEqual(self.backend.get_result(result.id).status.value, "READY")
        self.broker.advance(datetime.fromisoformat("2100-01-01T00:00:00+00:00") - START)
        self.broker.work(self.app)
        self.assertEqual(seen[-1], "later")

    def test_a_task_may_take_its_context(self) -> None:
        sent = tell.enqueue(7)
        self.broker.work(self.app)
        self.assertEqual(self.backend.get_result(sent.id)._return_value, ["RUNNING", 7])

    def test_what_is_no_task_is_not_called_and_what_is_not_there_is_said(self) -> None:
        self.app.tasks["django.tasks.run"].apply_async(("os.getcwd", [], {}, False, "default"), queue="default")
        self.broker.work(self.app)
        self.assertIn("is no task", self.broker.dead_letters("default")[0]["Reason"])
        self.assertRaises(TaskResultDoesNotExist, self.backend.get_result, "default:nope")
        self.assertRaises(TaskResultDoesNotExist, self.backend.get_result, "nope")
        with self.assertRaises(ValueError):
            dataclasses.replace(mail, queue_name="other").enqueue("x")


if __name__ == "__main__":
    unittest.main()
