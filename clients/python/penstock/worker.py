"""A worker of queues: the loop around the handlers of a program."""

from __future__ import annotations

import inspect
import json
import logging
import math
import queue
import random
import signal
import threading
import time
from typing import Any, Callable, Coroutine, Dict, List, Mapping, Optional, Sequence, Union

from . import _health, _settings
from ._engine import Engine, Held, Outcome, post_large
from ._pools import LoopPool, SoloPool, ThreadsPool
from ._types import Job, to_json
from ._version import __version__
from .client import Client
from .exceptions import ConfigurationError, Ignore, InvalidSignature, LeaseLost, PenstockError, Reject, Retry, Stopped

log = logging.getLogger("penstock.worker")

__all__ = ["Context", "Worker"]

UNKNOWN_AGAIN = (10, 20)  # seconds after which a job without a handler is handed out again


def unknown_task(name: str) -> Outcome:
    """A worker of another version may know the task: the job goes back, and stays."""
    return Outcome("QUEUED", random.randint(*UNKNOWN_AGAIN), reason=f"this worker has no task {name}"[:255])


def read_job(job: Job) -> Dict[str, Any]:
    """``task``, ``args``, ``kwargs`` and ``meta`` of a job. InvalidSignature: it is none."""
    try:
        value = json.loads(job.payload)
    except (ValueError, RecursionError):
        raise InvalidSignature("the payload is no job") from None
    if not isinstance(value, dict):
        raise InvalidSignature("the payload is no job")
    named = job.headers.get("X-Broker-Task") or value.get("task")  # the header decides
    if not isinstance(named, str) or not named:
        raise InvalidSignature("the payload is no job")
    value["task"] = named
    for name, kind in (("args", list), ("kwargs", dict), ("meta", dict)):
        value[name] = kind() if value.get(name) is None else value[name]
        if not isinstance(value[name], kind):
            raise InvalidSignature("the payload is no job")
    return value


class Context:
    """A job in the hands of its handler."""

    def __init__(self, held: Held, value: Mapping[str, Any]) -> None:
        self._held = held
        self.job: Job = held.job
        self.task: str = value["task"]
        self.args: List[Any] = value["args"]
        self.kwargs: Dict[str, Any] = value["kwargs"]
        self.meta: Dict[str, Any] = value["meta"]

    @property
    def message_id(self) -> str:
        return self.job.message_id

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def sleep(self, seconds: float) -> None:
        """Wait. Raises LeaseLost, or Stopped, as soon as the job is not this worker's any more."""
        self._held.sleep(seconds)

    def check(self) -> None:
        """Raise LeaseLost, or Stopped, if the job is not this worker's any more."""
        if self._held.reason is not None:
            raise self._held.reason


Handler = Callable[[Context], Any]


class HandlerRunner:
    """Runs the handlers of a Worker."""

    def __init__(self, client: Client, handlers: Mapping[str, Handler], results: bool) -> None:
        self._client = client
        self._handlers = handlers
        self._results = results

    def limits(self, held: Held) -> "tuple[Optional[float], Optional[float]]":
        return None, None

    def _find(self, held: Held) -> Union[Outcome, "tuple[Handler, Context]"]:
        try:
            context = Context(held, read_job(held.job))
        except InvalidSignature as error:
            return Outcome("DEAD", reason=str(error))
        handler = self._handlers.get(context.task) or self._handlers.get("*")
        if handler is None:
            log.warning("no handler for task %s: job %s goes back", context.task, held.job.id)
            return unknown_task(context.task)
        return handler, context

    def run(self, held: Held) -> Optional[Outcome]:
        found = self._find(held)
        if isinstance(found, Outcome):
            return found
        handler, context = found
        try:
            result = handler(context)
            if inspect.iscoroutine(result):
                import asyncio

                result = asyncio.run(result)
            return self._done(held, result)
        except BaseException as error:
            return failed(held, error)

    def arun(self, held: Held) -> "Optional[Coroutine[Any, Any, Optional[Outcome]]]":
        found = self._find(held)
        if isinstance(found, Outcome) or not inspect.iscoroutinefunction(found[0]):
            return None
        handler, context = found

        async def run() -> Optional[Outcome]:
            try:
                return self._done(held, await handler(context))
            except BaseException as error:
                return failed(held, error)

        return run()

    def _done(self, held: Held, result: Any) -> Outcome:
        outcome = Outcome("DELIVERED", response=to_json(result).encode() if self._results else None)
        post_large(self._client, held.job, outcome)
        return outcome


def failed(held: Held, error: BaseException) -> Optional[Outcome]:
    """What becomes of a job whose handler raised."""
    if isinstance(error, (LeaseLost, Stopped)):
        return None
    if isinstance(error, Ignore):
        return Outcome("DELIVERED")
    if isinstance(error, Reject):
        if error.requeue:
            return Outcome("QUEUED", 1, reason=str(error))
        return Outcome("DEAD", reason=str(error) or "rejected")
    if isinstance(error, Retry):
        return Outcome("QUEUED", max(1, math.ceil(error.when or 0)), True, str(error))
    log.exception("job %s: the handler failed", held.job.id, exc_info=error)
    import traceback

    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Outcome("QUEUED", 0, True, describe(error), detail[-1000:])


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:255]


class Worker:
    """Works on the jobs of queues until it is stopped.

    ``handlers`` has a function for each task; the one of ``"*"`` takes all others. A handler that
    returns has done its job. One that raises has failed: the attempt counts, and the job is tried again
    after the backoff of the queue. ``Reject`` makes it a dead letter.

    The worker claims exactly as many jobs as it has slots, renews their leases from a thread of its own,
    and gives back what it has not begun when it stops.
    """

    def __init__(
        self,
        client: Client,
        queues: Union[str, Sequence[str]],
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 4,
        pool: str = "threads",
        lease: Optional[int] = None,
        wait: float = 20.0,
        stop_timeout: Optional[float] = None,
        results: bool = False,
        health: Optional[str] = None,
        version: str = __version__,
    ) -> None:
        if concurrency < 1:
            raise ConfigurationError("concurrency must be at least 1")
        runner = HandlerRunner(client, handlers, results)
        tasks = [name for name in handlers if name != "*"]
        self._setup(client, queues, make_pool(pool, concurrency, runner), lease, wait, stop_timeout, health, version, tasks)

    def _setup(
        self,
        client: Client,
        queues: Union[str, Sequence[str]],
        pool: Any,
        lease: Optional[int],
        wait: float,
        stop_timeout: Optional[float],
        health: Optional[str],
        version: str,
        tasks: Sequence[str],
    ) -> None:
        names = [queues] if isinstance(queues, str) else list(queues)
        if not names:
            raise ConfigurationError("a worker needs a queue")
        self.client = client
        self._pool = pool
        seconds = _settings.default_lease() if lease is None else _settings.lease_of(lease, "lease")
        shown = [] if len(tasks) == 0 else tasks
        self._engine = Engine(client, names, pool, lease=seconds, wait=wait, tasks=shown, version=version)
        self._stop_timeout = stop_timeout
        self._health = health
        self._signals: "queue.SimpleQueue[Optional[str]]" = queue.SimpleQueue()
        self._stops = 0
        self.on_ready: Callable[[], Any] = lambda: None
        self.on_stop: Callable[[], Any] = lambda: None

    @property
    def counts(self) -> Dict[str, int]:
        """How many jobs were done, failed, given back, and lost."""
        return dict(self._engine.counts)

    @property
    def error(self) -> Optional[PenstockError]:
        """Why the worker ended by itself."""
        return self._engine.error

    def stop(self) -> None:
        """End in order: as the first SIGTERM. The second time as the second one."""
        self._signals.put("stop")

    def abort(self) -> None:
        """Give running jobs back and end within seconds."""
        self._signals.put("abort")

    def run(self, *, signals: bool = True) -> int:
        """Work until the end, and return the exit code: 0, or 1 after an error that ends a worker."""
        main = threading.current_thread() is threading.main_thread()
        before: Dict[int, Any] = {}
        engine = self._engine
        health = None
        controller = threading.Thread(target=self._control, name="penstock-control", daemon=True)
        try:
            if signals and main:
                for number in (signal.SIGTERM, signal.SIGINT):
                    before[number] = signal.signal(number, lambda n, _f: self._signals.put(f"signal {n}"))
            health = _health.serve(self._health, engine.healthy) if self._health else None
            engine.start()
            controller.start()
            self.on_ready()
            if isinstance(self._pool, SoloPool):
                self._pool.serve()
            while not engine.join(0.5):
                pass
        except PenstockError as error:
            engine.error = engine.error or error
            log.error("the worker cannot start: %s", error)
        finally:
            self._signals.put(None)
            if controller.is_alive():
                controller.join(2.0)
            if health is not None:
                health.close()
            self._pool.close()
            for was, handler in before.items():
                signal.signal(was, handler)
        return 1 if engine.error is not None else 0

    def _control(self) -> None:
        """Obeys stop() and signals, in a thread that is in no lock when they come."""
        engine = self._engine
        deadline: Optional[float] = None
        while True:
            try:
                word = self._signals.get(timeout=None if deadline is None else max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                word = "abort"
            if word is None:
                return
            self._stops += 1
            if word == "abort" or self._stops > 1:
                deadline = None
                log.warning("the worker ends at once: running jobs go back")
                engine.abort()
                continue
            log.info("the worker stops: running jobs finish")
            self.on_stop()
            if self._stop_timeout is not None:
                deadline = time.monotonic() + self._stop_timeout
            engine.stop()


def make_pool(name: str, concurrency: int, runner: Any) -> Any:
    if name == "threads":
        return ThreadsPool(concurrency, runner)
    if name == "solo":
        return SoloPool(runner)
    if name == "asyncio":
        return LoopPool(concurrency, runner)
    if name == "prefork":
        from ._prefork import PreforkPool, available

        if not available():
            raise ConfigurationError("the pool prefork needs fork, which this system does not have: use threads")
        return PreforkPool(concurrency, runner)
    raise ConfigurationError(f"the pool must be prefork, threads, solo or asyncio, not {name!r}")


