"""Results of tasks: responses that the broker carries back."""

from __future__ import annotations

import builtins
import contextvars
import json
import random
import sys
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Type

from . import states
from .exceptions import (
    BrokerError,
    NotSupported,
    RefusedError,
    TaskError,
    TaskRevokedError,
    TimeLimitExceeded,
    TimeoutError,
    WorkerLostError,
)

__all__ = ["AsyncResult", "EagerResult", "GroupResult", "ResultSet"]

# Set while this context runs a task: waiting for another one there would block a slot for it.
in_task: "contextvars.ContextVar[bool]" = contextvars.ContextVar("penstock_in_task", default=False)

_DEFAULT: Any = object()


def error_text(error: BaseException) -> str:
    """How a failure is told to the broker: the name of its class, with the module of one that is not built in."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = str(error.args[0]) if isinstance(error, KeyError) and len(error.args) == 1 else str(error)
    return f"{name}: {text}" if text else name


def error_of(text: str) -> BaseException:
    """The exception that a text of error_text tells of. A class is only looked for in modules that are
    loaded: a text from the network makes this process import nothing."""
    name, colon, said = text.partition(":")
    said = said.strip() if colon else ""
    module, _, kind = name.strip().rpartition(".")
    known = getattr(builtins, kind, None) if not module else getattr(sys.modules.get(module), kind, None)
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(said) if said else known()
        except Exception:
            pass
    if not kind.isidentifier():
        return TaskError(text)
    made: Type[TaskError] = type(kind, (TaskError,), {"type_name": name, "__module__": module or __name__})
    return made(said)


class AsyncResult:
    """What becomes of a task. ``id`` is the ID of its message, and its queue that of the task."""

    def __init__(
        self,
        id: str,
        backend: Any = None,
        task_name: Optional[str] = None,
        app: Any = None,
        parent: "Optional[Any]" = None,
        queue: Optional[str] = None,
        ignored: bool = False,
    ) -> None:
        from .app import current_app

        if not id or not isinstance(id, str):
            raise ValueError(f"AsyncResult needs the ID of a task, not {id!r}")
        self.id = self.task_id = id
        self.app = app or current_app()
        self.parent = parent
        self.task_name = task_name
        self._queue = queue
        self.ignored = ignored
        self._cache: Optional[Tuple[str, Any, Optional[str]]] = None

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, (AsyncResult, str)) and str(other) == self.id

    def as_tuple(self) -> Any:
        return (self.id, self.parent and self.parent.as_tuple()), None

    # Looking

    def _queues(self) -> List[str]:
        return [self._queue] if self._queue else self.app._result_queues(self.task_name)

    def _look(self, wait: float = 0.0) -> "Tuple[str, Any, Optional[str]]":
        """State, result or exception, and traceback."""
        if self._cache is not None:
            return self._cache
        found: Tuple[str, Any, Optional[str]] = (states.PENDING, None, None)
        for queue in self._queues():
            try:
                found = self._look_in(queue, wait)
            except RefusedError as error:
                if error.status != 404:
                    raise
                continue
            self._queue = queue
            break
        if found[0] in states.READY_STATES:
            self._cache = found
        return found

    def _look_in(self, queue: str, wait: float) -> "Tuple[str, Any, Optional[str]]":
        client = self.app.client
        for one in client.responses(queue, self.id, wait=wait):
            if one.consumer_id != queue:
                continue
            if one.received:
                return states.SUCCESS, _value(one.body, one.content_type), None
            if one.failed:
                return self._failure(queue, one.reason)
            return self._progress(queue)
        return self._progress(queue, responds=False)

    def _job(self, queue: str) -> Dict[str, Any]:
        answer = self.app._read_message(queue, self.id)
        for job in answer.get("Jobs") or []:
            if job.get("ConsumerID") == queue:
                found: Dict[str, Any] = job
                return found
        return {}

    def _progress(self, queue: str, responds: bool = True) -> "Tuple[str, Any, Optional[str]]":
        job = self._job(queue)
        status = job.get("Status")
        if status == "DEAD":
            return self._failure(queue, job.get("Reason") or job.get("ReasonCode") or "", job)
        if status == "DELIVERED":
            for one in self.app.client.responses(queue, self.id) if responds else ():
                if one.consumer_id == queue and one.received:
                    return states.SUCCESS, _value(one.body, one.content_type), None
            return states.SUCCESS, None, None
        if status == "INFLIGHT":
            return states.STARTED, None, None
        if status == "QUEUED" and job.get("Attempts"):
            return states.RETRY, error_of(job.get("Reason") or "retry"), None
        return states.PENDING, None, None

    def _failure(self, queue: str, reason: str, job: Optional[Dict[str, Any]] = None) -> "Tuple[str, Any, Optional[str]]":
        try:
            job = job or self._job(queue)
        except BrokerError:
            job = {}
        code, told = job.get("ReasonCode") or reason, job.get("Reason") or reason
        if code in ("expired", "purged") or told == "revoked":
            return states.REVOKED, TaskRevokedError("revoked" if told == "revoked" else code), None
        if code == "worker_lost":
            return states.FAILURE, WorkerLostError(told), None
        if told.startswith("penstock.exceptions.TimeLimitExceeded"):
            return states.FAILURE, TimeLimitExceeded(told.partition(":")[2].strip()), None
        return states.FAILURE, error_of(told), self.app._failure_detail(queue, job)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED. An unknown task is PENDING."""
        return self._look()[0]

    status = state

    @property
    def result(self) -> Any:
        """The result, or the exception; None while there is none."""
        return self._look()[1]

    info = result

    @property
    def traceback(self) -> Optional[str]:
        return self._look()[2]

    def ready(self) -> bool:
        return self.state in states.READY_STATES

    def successful(self) -> bool:
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        return self.state == states.FAILURE

    # Waiting

    def get(
        self,
        timeout: Optional[float] = _DEFAULT,
        propagate: bool = True,
        interval: float = 0.0,
        disable_sync_subtasks: bool = True,
        **_: Any,
    ) -> Any:
        """Wait for the result: 30 seconds (``result_timeout``) unless ``timeout`` says otherwise, and
        without a bound with None. The exception of a task that failed is raised here."""
        if in_task.get() and disable_sync_subtasks:
            raise RuntimeError(
                "Never call result.get() within a task! It holds a slot while it waits for one. "
                "Let a chain carry the result on."
            )
        if self.ignored:
            return None
        if timeout is _DEFAULT:
            timeout = self.app.conf.result_timeout
        end = None if timeout is None else time.monotonic() + timeout
        for node in self._ancestors():
            state, value, _tb = node._wait(end, timeout)
            if state in states.PROPAGATE_STATES and (node is self or propagate):
                if not propagate:
                    return value
                raise value
        return self._look()[1]

    wait = get

    def _ancestors(self) -> "List[Any]":
        nodes: List[Any] = []
        node: Any = self
        while node is not None:
            nodes += [node] if isinstance(node, AsyncResult) else list(node.results)
            node = node.parent
        return nodes[::-1]

    def _wait(self, end: Optional[float], timeout: Optional[float]) -> "Tuple[str, Any, Optional[str]]":
        pause = 0.02
        while True:
            left = 60.0 if end is None else end - time.monotonic()
            try:
                found = self._look(max(0.0, min(left, 20.0)))
            except RefusedError:
                raise
            except BrokerError as error:  # the broker restarts, say: the result is there when it is back
                if end is not None and time.monotonic() >= end:
                    raise
                found, pause = (states.PENDING, None, None), max(pause, min(error.retry_after or 0.5, 5.0))
            if found[0] in states.READY_STATES:
                return found
            left = 60.0 if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the task {self.id} has no result after {timeout:g} s: it is {found[0]}")
            # The message may not be there yet: of a schedule, or of a later part of a chain.
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(pause * 1.5, 1.0)

    def collect(self, *_: Any, **__: Any) -> Any:
        raise NotSupported("collect: results of subtasks are not linked. Use group and chain.")

    # Ending

    def revoke(self, connection: Any = None, terminate: bool = False, signal: Any = None, wait: bool = False, timeout: Any = None) -> bool:
        """End a task that has not begun; True: it will not run. A task that runs is not ended: with
        ``terminate`` this is an error."""
        if terminate:
            raise NotSupported(
                "revoke(terminate=True): nothing reaches into a worker. Give the task a time_limit, or let it look at a "
                "flag of yours."
            )
        revoked = any(self.app._revoke(queue, self.id) for queue in self._queues())
        if revoked:
            self._cache = (states.REVOKED, TaskRevokedError("revoked"), None)
        return revoked

    def forget(self) -> None:
        """Nothing: a result is kept as long as its message."""
        self._cache = None

    @property
    def name(self) -> Optional[str]:
        return self.task_name

    @property
    def children(self) -> List[Any]:
        return []

    @property
    def queue(self) -> Optional[str]:
        return self._queue


def _value(body: bytes, content_type: str) -> Any:
    if "json" in content_type:
        try:
            return json.loads(body)
        except ValueError:
            pass
    return body.decode("utf-8", "replace") if content_type.startswith("text/") else body


class ResultSet:
    """Several results."""

    def __init__(self, results: Iterable[Any], app: Any = None, **_: Any) -> None:
        self.results = list(results)
        self.parent: Any = None
        self.app = app

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, i: int) -> Any:
        return self.results[i]

    def add(self, result: Any) -> None:
        self.results.append(result)

    def ready(self) -> bool:
        return all(r.ready() for r in self.results)

    def successful(self) -> bool:
        return all(r.successful() for r in self.results)

    def failed(self) -> bool:
        return any(r.failed() for r in self.results)

    def waiting(self) -> bool:
        return any(not r.ready() for r in self.results)

    def completed_count(self) -> int:
        return sum(1 for r in self.results if r.successful())

    def revoke(self, *args: Any, **named: Any) -> None:
        for r in self.results:
            r.revoke(*args, **named)

    def forget(self) -> None:
        for r in self.results:
            r.forget()

    def get(
        self,
        timeout: Optional[float] = _DEFAULT,
        propagate: bool = True,
        interval: float = 0.0,
        callback: Optional[Callable[[str, Any], Any]] = None,
        disable_sync_subtasks: bool = True,
        **_: Any,
    ) -> List[Any]:
        """The results in the order of the tasks."""
        first: Any = self.results[0] if self.results else None
        if timeout is _DEFAULT:
            timeout = first.app.conf.result_timeout if first is not None else None
        end = None if timeout is None else time.monotonic() + timeout
        out = []
        for r in self.results:
            left = None if end is None else max(0.0, end - time.monotonic())
            value = r.get(timeout=left, propagate=propagate, disable_sync_subtasks=disable_sync_subtasks)
            if callback is not None:
                callback(r.id, value)
            else:
                out.append(value)
        return out

    join = get
    join_native = get


class GroupResult(ResultSet):
    """The results of a group."""

    def __init__(self, id: Optional[str] = None, results: Iterable[Any] = (), parent: Any = None, app: Any = None) -> None:
        super().__init__(results, app)
        self.id = id
        self.parent = parent

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(str(r.id) for r in self.results)}]>"

    @property
    def children(self) -> List[Any]:
        return self.results

    def as_tuple(self) -> Any:
        return (self.id, None), [r.as_tuple() for r in self.results]


class EagerResult(AsyncResult):
    """The result of a task that ran here, at once."""

    def __init__(self, id: str, value: Any, state: str, traceback: Optional[str] = None, app: Any = None, name: str = "") -> None:
        super().__init__(id, app=app, task_name=name)
        self._cache = (state, value, traceback)

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"

    def get(self, timeout: Optional[float] = None, propagate: bool = True, *args: Any, **named: Any) -> Any:
        state, value, _tb = self._look()
        if propagate and state in (states.FAILURE, states.REVOKED, states.RETRY) and isinstance(value, BaseException):
            raise value
        return value

    wait = get

    def forget(self) -> None:
        pass

    def revoke(self, *args: Any, **named: Any) -> bool:
        return False
