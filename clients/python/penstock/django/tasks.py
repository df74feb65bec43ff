"""A backend of ``django.tasks``: tasks in Django's form, carried by Penstock.

    TASKS = {"default": {"BACKEND": "penstock.django.tasks.PenstockBackend", "QUEUES": ["default"]}}

    python -m penstock worker -A penstock.django.tasks -Q default
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Dict, Optional

from .. import states
from .._types import to_json
from ..app import Penstock
from ..exceptions import RefusedError
from ..result import AsyncResult

if TYPE_CHECKING:
    BaseTaskBackend: Any = object
else:
    from django.tasks.backends.base import BaseTaskBackend

__all__ = ["NAME", "PenstockBackend", "app"]

NAME = "django.tasks.run"
_PRIORITIES = 100  # of django.tasks: -100 to 100

app = Penstock("django.tasks", set_as_current=False)


def _setup() -> None:
    if os.environ.get("DJANGO_SETTINGS_MODULE"):
        import django
        from django.apps import apps

        if not apps.ready:
            django.setup()


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@app.task(name=NAME, bind=True, max_retries=0)
def run(self: Any, path: str, args: Any, kwargs: Any, takes_context: bool, backend: str) -> Any:
    """Run a task of Django by the path of its function."""
    _setup()
    task = _import(path)
    function = getattr(task, "func", None)
    if function is None or not hasattr(task, "enqueue"):
        raise TypeError(f"{path} is no task")  # a message must not call any function that there is
    if takes_context:
        from django.tasks.base import TaskContext

        result = _backend(backend)._result_of(task, self.request.id, args, kwargs, states.STARTED)
        args = [TaskContext(task_result=result), *args]
    value = function(*args, **kwargs)
    if inspect.iscoroutine(value):
        from .._task import on_loop

        return on_loop(value)
    return value


def _backend(alias: str) -> Any:
    from django.tasks import task_backends

    return task_backends[alias]


class PenstockBackend(BaseTaskBackend):  # type: ignore[misc]
    """The queue of a task is a queue of Penstock; ``run_after`` waits in the broker."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.alias = alias
        url = (params.get("OPTIONS") or {}).get("url")
        if url:
            app.conf.broker_url = url

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Publish a job of a task; when this returns, it is on disk."""
        self.validate_task(task)
        args, kwargs = list(args or ()), dict(kwargs or {})
        to_json([args, kwargs])  # fails here, not in a worker
        path = f"{task.func.__module__}.{task.func.__qualname__}"
        options: Dict[str, Any] = {"queue": task.queue_name, "priority": int(task.priority) + _PRIORITIES}
        after = getattr(task, "run_after", None)
        if isinstance(after, datetime):
            options["eta"] = after
        takes = bool(getattr(task, "takes_context", False))
        sent = app.tasks[NAME].apply_async((path, args, kwargs, takes, self.alias), **options)
        return self._result_of(task, f"{task.queue_name}:{sent.id}", args, kwargs, states.PENDING)

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, self.enqueue, task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        """The result by its ID, whose first part is the queue."""
        from django.tasks.exceptions import TaskResultDoesNotExist

        queue, _, id = result_id.rpartition(":")
        if not queue:
            raise TaskResultDoesNotExist(result_id)
        found = AsyncResult(id, app=app, queue=queue)
        try:
            payload = app._read_message(queue, id).get("Payload")
        except RefusedError as error:
            if error.status != 404:
                raise
            payload = (app.client.scheduled(queue, id) or {}).get("payload")
        if not payload:
            raise TaskResultDoesNotExist(result_id)
        path, args, kwargs = json.loads(payload)["args"][:3]
        state, value, trace = found._look()
        return self._result_of(_import(path), result_id, args, kwargs, state, value, trace)

    async def aget_result(self, result_id: str) -> Any:
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(None, self.get_result, result_id)

    def _result_of(
        self, task: Any, id: str, args: Any, kwargs: Any, state: str, value: Any = None, trace: Optional[str] = None
    ) -> Any:
        from django.tasks.base import TaskError, TaskResult, TaskResultStatus

        status = {
            states.STARTED: TaskResultStatus.RUNNING,
            states.SUCCESS: TaskResultStatus.SUCCESSFUL,
            states.FAILURE: TaskResultStatus.FAILED,
            states.REVOKED: TaskResultStatus.FAILED,
        }.get(state, TaskResultStatus.READY)
        errors = []
        if status == TaskResultStatus.FAILED:
            kind = type(value)
            errors = [TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=trace or str(value))]
        now = datetime.now(timezone.utc)
        result = TaskResult(
            task=task, id=id, status=status, enqueued_at=now, started_at=None, last_attempted_at=None, finished_at=None,
            args=args, kwargs=kwargs, backend=self.alias, errors=errors, worker_ids=[],
        )  # fmt: skip
        if state == states.SUCCESS:
            object.__setattr__(result, "_return_value", value)
        return result
