"""A task: a function that workers run, in Celery's form."""

from __future__ import annotations

import contextvars
import difflib
import inspect
import random
import sys
import threading
import traceback as tracebacks
import uuid
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

from . import signals, states
from ._conf import check_serializer
from ._types import Message, job_payload
from .exceptions import (
    ConfigurationError,
    Ignore,
    LeaseLost,
    MaxRetriesExceededError,
    NotSupported,
    Reject,
    Retry,
    Stopped,
)
from .result import AsyncResult, EagerResult, in_task

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
else:
    P = TypeVar("P")
R = TypeVar("R")
RetryError = Retry

_UNSET: Any = object()


class UnknownOption(ConfigurationError, TypeError):
    """An option that does not exist, perhaps misspelt."""


# Options of apply_async that are refused, with the reason.
REFUSED = {
    "link": "link: a callback beside a task could be lost with its worker. Use a chain, whose next task is published "
    "before its task is done.",
    "link_error": "link_error: connect to the signal task_failure, or look at the dead letters of the queue.",
    "chord": "chord: Penstock has no chords. Use a group, and let its results come to one task by a counter of yours.",
    "producer": "producer: there is no connection to hand over",
    "connection": "connection: there is no connection to hand over",
    "routing_key": "routing_key: a queue of Penstock has no bindings: use queue=",
    "exchange": "exchange: a queue of Penstock has no exchange: use queue=",
    "add_to_parent": "add_to_parent: results of subtasks are not linked",
    "rate_limit": "rate_limit: it is set for the queue, for all workers together: PUT the consumer with rateLimit=100/1m",
}
OPTIONS = (
    "countdown", "eta", "expires", "queue", "priority", "task_id", "headers", "ignore_result", "time_limit",
    "soft_time_limit", "serializer", "retry", "retry_policy", "shadow", "compression", "root_id", "parent_id", "group_id",
)  # fmt: skip
TASK_OPTIONS = {
    "max_retries": 3,
    "default_retry_delay": 180,
    "autoretry_for": (),
    "dont_autoretry_for": (),
    "retry_kwargs": None,
    "retry_backoff": False,
    "retry_backoff_max": 600,
    "retry_jitter": True,
    "queue": None,
    "priority": None,
    "time_limit": None,
    "soft_time_limit": None,
    "ignore_result": None,
    "acks_late": True,
    "serializer": "json",
    "expires": None,
    "throws": (),
    "typing": True,
    "track_started": False,
    "reject_on_worker_lost": None,
    "acks_on_failure_or_timeout": None,
    "store_errors_even_if_ignored": False,
    "send_events": None,
    "trail": True,
    "compression": None,
}


def check_options(options: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse what is not supported, and name what does not exist."""
    known = list(known)
    for name in options:
        if name in known:
            continue
        if name in REFUSED:
            raise NotSupported(REFUSED[name])
        near = difflib.get_close_matches(name, known, 1, 0.6)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise UnknownOption(f"{where} has no option {name!r}{hint}")


class Request:
    """What a task knows of the job that it works on."""

    def __init__(self, **members: Any) -> None:
        self.id: Optional[str] = None
        self.task: Optional[str] = None
        self.args: List[Any] = []
        self.kwargs: Dict[str, Any] = {}
        self.retries = 0
        self.eta: Optional[str] = None
        self.expires: Optional[str] = None
        self.is_eager = False
        self.called_directly = True
        self.headers: Dict[str, Any] = {}
        self.delivery_info: Dict[str, Any] = {}
        self.hostname: Optional[str] = None
        self.root_id: Optional[str] = None
        self.parent_id: Optional[str] = None
        self.group: Optional[str] = None
        self.chain: Optional[List[Any]] = None
        self.timelimit: Tuple[Optional[float], Optional[float]] = (None, None)
        self.meta: Dict[str, Any] = {}
        self.held: Any = None
        self.__dict__.update(members)

    @property
    def correlation_id(self) -> Optional[str]:
        return self.id

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


current: "contextvars.ContextVar[Tuple[Any, ...]]" = contextvars.ContextVar("penstock_tasks", default=())


def backoff_interval(factor: int, retries: int, most: float, jitter: bool) -> int:
    """The wait before a retry: it doubles each time, up to ``most``."""
    seconds = min(most, factor * 2 ** min(retries, 60))
    return random.randrange(int(seconds) + 1) if jitter else int(max(0, seconds))


class Task(Generic[P, R]):
    """A task. ``delay`` publishes a job of it; a call runs it here."""

    name: str = ""
    abstract = True
    max_retries: Optional[int] = 3
    default_retry_delay: float = 180
    autoretry_for: Tuple[type, ...] = ()
    dont_autoretry_for: Tuple[type, ...] = ()
    retry_kwargs: Optional[Dict[str, Any]] = None
    retry_backoff: Any = False
    retry_backoff_max: float = 600
    retry_jitter: bool = True
    queue: Optional[str] = None
    priority: Optional[int] = None
    time_limit: Optional[float] = None
    soft_time_limit: Optional[float] = None
    ignore_result: Optional[bool] = None
    acks_late = True
    serializer: str = "json"
    expires: Any = None
    throws: Tuple[type, ...] = ()
    typing = True
    _app: Any = None
    _bound = True  # run takes self: false for functions without bind=True
    MaxRetriesExceededError = MaxRetriesExceededError
    Retry = Retry

    def __init__(self) -> None:
        if not self.name:
            self.name = f"{type(self).__module__}.{type(self).__qualname__}"

    def run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a task defines run")

    @property
    def app(self) -> Any:
        if self._app is not None:
            return self._app
        from .app import current_app

        return current_app()

    @classmethod
    def bind(cls, app: Any) -> Any:
        cls._app = app
        return app

    def __repr__(self) -> str:
        return f"<@task: {self.name}>"

    def __reduce__(self) -> Any:
        return _find_task, (self.name,)

    # Hooks of subclasses

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        pass

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        pass

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        pass

    def on_retry(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        pass

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        pass

    # Calling

    def __call__(self, *args: "P.args", **kwargs: "P.kwargs") -> R:
        """Run the task here."""
        stack = current.get()
        token = current.set(stack + ((self, Request(args=list(args), kwargs=dict(kwargs))),))
        try:
            return self.run(*args, **kwargs)  # type: ignore[no-any-return]
        finally:
            current.reset(token)

    @property
    def request(self) -> Request:
        for task, request in reversed(current.get()):
            if task.name == self.name:
                found: Request = request
                return found
        return Request()

    def delay(self, *args: "P.args", **kwargs: "P.kwargs") -> AsyncResult:
        """Publish a job of the task with these arguments."""
        return self.apply_async(args, kwargs)

    def delay_on_commit(self, *args: "P.args", **kwargs: "P.kwargs") -> None:
        """``delay``, after the transaction of the database has committed."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(self, args: Any = None, kwargs: Any = None, **options: Any) -> None:
        check_options(options, OPTIONS, "apply_async_on_commit")
        self._check_arguments(args, kwargs)
        self.app._on_commit(lambda: self.apply_async(args, kwargs, **options))

    def apply_async(
        self,
        args: Optional[Iterable[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        task_id: Optional[str] = None,
        **options: Any,
    ) -> AsyncResult:
        """Publish a job of the task.

        Options: ``countdown`` (seconds) or ``eta`` (datetime), ``expires`` (seconds or datetime),
        ``queue``, ``priority`` (higher first), ``task_id``, ``headers``, ``ignore_result``,
        ``time_limit``, ``soft_time_limit``.
        """
        check_options(options, OPTIONS, "apply_async")
        args, kwargs = list(args or ()), dict(kwargs or {})
        self._check_arguments(args, kwargs)
        app = self.app
        if app._eager():
            return self.apply(args, kwargs, task_id=task_id, **options)
        queue, message = self._message(args, kwargs, task_id=task_id, **options)
        app._publish(queue, message)
        ignored = options.get("ignore_result")
        if ignored is None:
            ignored = self.ignore_result
        if ignored is None:
            ignored = app.conf.task_ignore_result
        id = message.message_id or ""
        return AsyncResult(id, task_name=self.name, app=app, queue=queue, ignored=bool(ignored))

    def _check_arguments(self, args: Any, kwargs: Any) -> None:
        """A call with arguments that the function does not take fails here, not in a worker."""
        if not self.typing:
            return
        try:
            self._signature().bind(*(args or ()), **(kwargs or {}))
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None

    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.run)

    def _message(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        task_id: Optional[str] = None,
        countdown: Optional[float] = None,
        eta: Optional[datetime] = None,
        expires: Any = None,
        queue: Optional[str] = None,
        priority: Optional[int] = None,
        headers: Optional[Mapping[str, Any]] = None,
        serializer: Optional[str] = None,
        meta: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> Tuple[str, Message]:
        """The queue and the message of a job."""
        if serializer:
            check_serializer(serializer, "serializer")
        app = self.app
        queue = queue or app._queue_of(self)
        priority = priority if priority is not None else self.priority
        if priority is None:
            priority = app.conf.task_default_priority
        all_meta = {k: v for k, v in (meta or {}).items() if v is not None}
        for name in ("time_limit", "soft_time_limit", "ignore_result", "root_id", "parent_id", "group_id"):
            if options.get(name) is not None:
                all_meta[name] = options[name]
        at, delay = None, None
        now = datetime.now(timezone.utc)
        if eta is not None:
            at = app._aware(eta)
            all_meta["eta"] = at.isoformat()
            if at <= now:
                at = None
        elif countdown is not None and float(countdown) > 0:
            delay = float(countdown)
            all_meta["eta"] = (now + timedelta(seconds=delay)).isoformat()
        ttl = self._ttl(expires if expires is not None else self.expires, at, delay, now, all_meta)
        message = Message(
            job_payload(self.name, args, kwargs, all_meta),
            "application/json",
            task_id or str(uuid.uuid4()),
            priority,
            {str(k): str(v) for k, v in headers.items()} if headers else None,
            delay,
            at,
            None,
            ttl,
            None,
            None,
            self.name if 1 <= len(self.name.encode()) <= 128 and "," not in self.name else None,
        )
        return queue, message

    def _ttl(self, expires: Any, at: Optional[datetime], delay: Optional[float], now: datetime, meta: Dict[str, Any]) -> Optional[float]:
        """The time to live, which counts from when the message is sent."""
        if expires is None:
            return None
        if isinstance(expires, datetime):
            seconds = (self.app._aware(expires) - now).total_seconds()
        else:
            seconds = expires.total_seconds() if isinstance(expires, timedelta) else float(expires)
        meta["expires"] = (now + timedelta(seconds=seconds)).isoformat()
        seconds = float(seconds) - (delay or 0)
        seconds -= (at - now).total_seconds() if at is not None else 0
        return float(min(max(seconds, 0.1), 8760 * 3600.0))

    # Signatures

    def s(self, *args: Any, **kwargs: Any) -> Any:
        """A signature: the task with arguments, to be called later."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Any:
        """An immutable signature: it takes no result of the task before it."""
        return self.signature(args, kwargs, immutable=True)

    def signature(self, args: Any = (), kwargs: Any = None, options: Any = None, immutable: bool = False, **more: Any) -> Any:
        from .canvas import Signature

        return Signature(self.name, args, kwargs, {**(options or {}), **more}, immutable=immutable, app=self._app)

    subtask = signature

    def map(self, *_: Any) -> Any:
        raise NotSupported("map: one job with many arguments fails as a whole. Use a group.")

    def starmap(self, *_: Any) -> Any:
        raise NotSupported("starmap: one job with many arguments fails as a whole. Use a group.")

    def chunks(self, *_: Any) -> Any:
        raise NotSupported("chunks: one job with many arguments fails as a whole. Use a group.")

    def AsyncResult(self, task_id: str, **options: Any) -> AsyncResult:
        return AsyncResult(task_id, task_name=self.name, app=self.app, **options)

    # Trying again

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Optional[BaseException] = None,
        throw: bool = True,
        eta: Optional[datetime] = None,
        countdown: Optional[float] = None,
        max_retries: Any = _UNSET,
        **options: Any,
    ) -> "RetryError":
        """Let the job come again later: ``raise self.retry(exc=error, countdown=60)``.

        After ``max_retries`` tries ``exc`` is raised, or MaxRetriesExceededError.
        """
        request = self.request
        check_options(options, OPTIONS, "retry")
        most = self.max_retries if max_retries is _UNSET else max_retries
        if request.called_directly:
            raise exc or sys.exc_info()[1] or Retry("Task can be retried", None)
        if eta is not None:
            countdown = max(0.0, (self.app._aware(eta) - datetime.now(timezone.utc)).total_seconds())
        elif countdown is None:
            countdown = self.default_retry_delay
        if most is not None and request.retries >= most:
            error = exc or sys.exc_info()[1]
            if isinstance(error, BaseException) and not isinstance(error, Retry):
                raise error
            raise MaxRetriesExceededError(
                f"Can't retry {self.name}[{request.id}] args:{request.args} kwargs:{request.kwargs}",
                task_args=request.args,
                task_kwargs=request.kwargs,
            )
        changed = args is not None or kwargs is not None or options
        again = {"args": request.args if args is None else list(args), "kwargs": request.kwargs if kwargs is None else kwargs}
        retry = Retry(exc=exc or sys.exc_info()[1], when=float(countdown or 0), is_eager=request.is_eager)
        retry.sig = {**again, **options} if changed else None
        if throw:
            raise retry
        return retry

    def autoretry(self, error: BaseException) -> BaseException:
        """What an exception that the task raised becomes: a Retry where the task asks for it."""
        if not self.autoretry_for or isinstance(error, (Ignore, Reject, Retry, LeaseLost, Stopped)):
            return error
        if not isinstance(error, tuple(self.autoretry_for)) or isinstance(error, tuple(self.dont_autoretry_for)):
            return error
        named = dict(self.retry_kwargs or {})
        if self.retry_backoff:
            factor = 1 if self.retry_backoff is True else int(self.retry_backoff)
            named["countdown"] = backoff_interval(factor, self.request.retries, self.retry_backoff_max, self.retry_jitter)
        try:
            self.retry(exc=error, **named)
        except BaseException as what:
            return what
        return error

    # Running here

    def apply(
        self,
        args: Any = None,
        kwargs: Any = None,
        throw: Optional[bool] = None,
        retries: int = 0,
        task_id: Optional[str] = None,
        **options: Any,
    ) -> EagerResult:
        """Run the task here, as a worker would, and return its result."""
        check_options((o for o in options if o != "meta"), OPTIONS, "apply")
        app = self.app
        args, kwargs = list(args or ()), dict(kwargs or {})
        throw = app.conf.task_eager_propagates if throw is None else throw
        id = task_id or str(uuid.uuid4())
        request = Request(
            id=id, task=self.name, args=args, kwargs=kwargs, retries=retries, is_eager=True, called_directly=False,
            headers=dict(options.get("headers") or {}), root_id=id,
            delivery_info={"is_eager": True, "routing_key": options.get("queue"), "priority": options.get("priority")},
        )  # fmt: skip
        traced = run_traced(Trace(self, request, args, kwargs), awaiting=True)
        error = traced.error
        if isinstance(error, Retry):
            again = error.sig or {"args": args, "kwargs": kwargs}
            return self.apply(again["args"], again["kwargs"], throw, retries + 1, id)
        if throw and error is not None and not isinstance(error, (Ignore, Reject)):
            raise error
        return EagerResult(id, error if error is not None else traced.value, traced.state, traced.text, app, self.name)


def _find_task(name: str) -> Any:
    from .app import current_app

    return current_app().tasks[name]


class ErrorInfo:
    """Celery's einfo: an exception with its traceback as text."""

    def __init__(self, error: BaseException) -> None:
        self.type = type(error)
        self.exception = error
        self.tb = error.__traceback__
        self.traceback = "".join(tracebacks.format_exception(type(error), error, error.__traceback__))

    def __str__(self) -> str:
        return self.traceback


class Trace:
    """One run of a task: its signals and hooks, and how it ended."""

    def __init__(self, task: Task[Any, Any], request: Request, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.task = task
        self.request = request
        self.args = args
        self.kwargs = kwargs
        self.state = states.PENDING
        self.value: Any = None
        self.error: Optional[BaseException] = None
        self.text: Optional[str] = None

    def begin(self) -> "Tuple[Any, Any]":
        tokens = (current.set(current.get() + ((self.task, self.request),)), in_task.set(not self.request.is_eager))
        signals.task_prerun.send(self.task, task_id=self.request.id, task=self.task, args=self.args, kwargs=self.kwargs)
        return tokens

    def call(self) -> Any:
        self.task.before_start(self.request.id or "", self.args, self.kwargs)
        return self.task.run(*self.args, **self.kwargs)

    def failed(self, error: BaseException) -> None:
        error = self.task.autoretry(error)
        self.error = error
        info = ErrorInfo(error)
        self.text = info.traceback
        id, task = self.request.id or "", self.task
        if isinstance(error, Retry):
            self.state = states.RETRY
            signals.task_retry.send(task, request=self.request, reason=error, einfo=info)
            self._hook(task.on_retry, error.exc or error, id, self.args, self.kwargs, info)
        elif isinstance(error, Ignore):
            self.state = "IGNORED"
        elif isinstance(error, Reject):
            self.state = "REJECTED"
        elif isinstance(error, (LeaseLost, Stopped)):
            self.state = "LOST"
        else:
            self.state = states.FAILURE
            self._hook(task.on_failure, error, id, self.args, self.kwargs, info)
            signals.task_failure.send(
                task, task_id=id, exception=error, args=self.args, kwargs=self.kwargs, traceback=error.__traceback__, einfo=info
            )

    def succeeded(self, value: Any) -> None:
        self.state, self.value = states.SUCCESS, value
        self._hook(self.task.on_success, value, self.request.id, self.args, self.kwargs)
        signals.task_success.send(self.task, result=value)

    def end(self, tokens: "Tuple[Any, Any]") -> None:
        value = self.value if self.error is None else self.error
        info = ErrorInfo(self.error) if self.error is not None else None
        self._hook(self.task.after_return, self.state, value, self.request.id, self.args, self.kwargs, info)
        signals.task_postrun.send(
            self.task, task_id=self.request.id, task=self.task, args=self.args, kwargs=self.kwargs, retval=value, state=self.state
        )
        current.reset(tokens[0])
        in_task.reset(tokens[1])

    def _hook(self, hook: Callable[..., Any], *args: Any) -> None:
        try:
            hook(*args)
        except (LeaseLost, Stopped):
            raise
        except Exception:
            import logging

            logging.getLogger("penstock.task").exception("%s of %s failed", hook.__name__, self.task.name)


_loops = threading.local()


def on_loop(coroutine: Any, interruptible: Any = None) -> Any:
    """Run a coroutine on the event loop of this thread, which is kept for the next one."""
    import asyncio

    loop = getattr(_loops, "loop", None)
    if loop is None or loop.is_closed():
        loop = _loops.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(coroutine)


def run_traced(trace: Trace, awaiting: bool = False) -> Trace:
    """Run a task in this thread."""
    tokens = trace.begin()
    try:
        try:
            value = trace.call()
            if inspect.isawaitable(value):
                value = _await_here(value)
            trace.succeeded(value)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
                raise
            trace.failed(error)
    finally:
        trace.end(tokens)
    return trace


def _await_here(value: Any) -> Any:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return on_loop(_wrap(value))
    # A loop runs in this thread, as with task_always_eager in an async view: use another thread.
    out: List[Any] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            out.append((asyncio.run(_wrap(value)), None))
        except BaseException as error:
            out.append((None, error))

    thread = threading.Thread(target=context.run, args=(run,))
    thread.start()
    thread.join()
    result, error = out[0]
    if error is not None:
        raise error
    return result


async def _wrap(value: Any) -> Any:
    return await value


async def run_traced_async(trace: Trace) -> Trace:
    """Run a task of a coroutine on this loop."""
    tokens = trace.begin()
    try:
        try:
            value = trace.call()
            if inspect.isawaitable(value):
                value = await value
            trace.succeeded(value)
        except BaseException as error:
            trace.failed(error)
    finally:
        trace.end(tokens)
    return trace


