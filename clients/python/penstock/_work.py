"""The worker of an app."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
from typing import Any, Coroutine, Dict, List, Mapping, Optional, Sequence, Tuple

from . import signals
from ._engine import Held, Outcome, post_large
from ._task import Request, Trace, run_traced, run_traced_async
from ._types import Job, to_json
from ._version import __version__
from .canvas import publish_next
from .exceptions import (
    BrokerError,
    ConfigurationError,
    EncodeError,
    Ignore,
    InvalidSignature,
    PenstockError,
    Reject,
    Retry,
    TimeLimitExceeded,
)
from .result import error_text
from .worker import Worker, make_pool, read_job, unknown_task

log = logging.getLogger("penstock.worker")

NOTHING = b"null"  # the response of a task without a result


class AppRunner:
    """Runs the tasks of an app."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def find(self, held: Held) -> "Any":
        """The task and the job, or what becomes of a job without one."""
        try:
            value = read_job(held.job)
        except InvalidSignature as error:
            log.error("job %s is none: %s", held.job.id, error)
            return Outcome("DEAD", reason=str(error))
        if value["task"] not in self.app.tasks:
            log.error("task %s is not registered here: job %s goes back", value["task"], held.job.id)
            return unknown_task(value["task"])
        return self.app.tasks[value["task"]], value

    def limits(self, held: Held) -> Tuple[Optional[float], Optional[float]]:
        found = self.find_quietly(held)
        if found is None:
            return None, None
        task, value = found
        conf, meta = self.app.conf, value["meta"]
        soft = meta.get("soft_time_limit") or task.soft_time_limit or conf.task_soft_time_limit
        hard = meta.get("time_limit") or task.time_limit or conf.task_time_limit
        return _number(soft), _number(hard)

    def find_quietly(self, held: Held) -> Any:
        try:
            value = read_job(held.job)
        except InvalidSignature:
            return None
        return (self.app.tasks[value["task"]], value) if value["task"] in self.app.tasks else None

    def _trace(self, job: Job, task: Any, value: Mapping[str, Any], held: Any) -> Trace:
        meta = value["meta"]
        request = Request(
            id=meta.get("id") or job.message_id,
            task=task.name,
            args=value["args"],
            kwargs=value["kwargs"],
            retries=max(0, job.attempt - 1 - job.leases_lost) + int(meta.get("retries") or 0),
            eta=meta.get("eta"),
            expires=meta.get("expires"),
            is_eager=False,
            called_directly=False,
            headers=dict(job.headers),
            delivery_info={
                "exchange": "", "routing_key": job.channel, "priority": job.priority, "redelivered": job.attempt > 1,
            },
            hostname=self.app.client.worker,
            root_id=meta.get("root_id") or job.message_id,
            parent_id=meta.get("parent_id"),
            group=meta.get("group_id"),
            chain=meta.get("chain"),
            meta=meta,
            held=held,
        )  # fmt: skip
        return Trace(task, request, value["args"], value["kwargs"])

    # In this process

    def run(self, held: Held) -> Optional[Outcome]:
        try:
            found = self.find(held)
            if isinstance(found, Outcome):
                return found
            outcome = self.run_job(held.job, found[0], found[1], held)
            self.respond(held.job, outcome)
            return outcome
        except PenstockError:
            raise
        except Exception:
            log.exception("job %s: the worker failed", held.job.id)
            return None

    def run_job(self, job: Job, task: Any, value: Mapping[str, Any], held: Any = None) -> Optional[Outcome]:
        return self.outcome(run_traced(self._trace(job, task, value, held)), job)

    def arun(self, held: Held) -> "Optional[Coroutine[Any, Any, Optional[Outcome]]]":
        found = self.find_quietly(held)
        if found is None or not asyncio.iscoroutinefunction(getattr(found[0].run, "__func__", found[0].run)):
            return None
        trace = self._trace(held.job, found[0], found[1], held)

        async def run() -> Optional[Outcome]:
            done = await run_traced_async(trace)
            loop = asyncio.get_running_loop()

            def end() -> Optional[Outcome]:
                outcome = self.outcome(done, held.job)
                self.respond(held.job, outcome)
                return outcome

            return await loop.run_in_executor(None, end)

        return run()

    def outcome(self, trace: Trace, job: Job) -> Optional[Outcome]:
        """What a run of a task means for its job."""
        error = trace.error
        if error is None:
            return self._success(trace, job)
        if trace.state == "LOST":
            return None
        if isinstance(error, Ignore):
            return Outcome("DELIVERED", response=NOTHING)
        if isinstance(error, Reject):
            if error.requeue:
                return Outcome("QUEUED", 1, reason=str(error))
            return Outcome("DEAD", reason=f"rejected: {error}" if str(error) else "rejected")
        if isinstance(error, Retry):
            return self._retry(trace, job, error)
        expected = isinstance(error, tuple(trace.task.throws)) if trace.task.throws else False
        (log.info if expected else log.error)(
            "task %s[%s] raised: %r%s", trace.task.name, trace.request.id, error, "" if expected else "\n" + (trace.text or "")
        )
        return Outcome("DEAD", reason=error_text(error)[:255], detail=(trace.text or "")[-1000:])

    def _success(self, trace: Trace, job: Job) -> Outcome:
        try:
            text = to_json(trace.value)
        except EncodeError as error:
            log.error("task %s[%s]: its result is no JSON: %s", trace.task.name, trace.request.id, error)
            return Outcome("DEAD", reason=error_text(error)[:255])
        if trace.request.chain:
            try:
                publish_next(list(trace.request.chain), json.loads(text), self.app)
            except (InvalidSignature, EncodeError, TypeError, ConfigurationError) as error:
                return Outcome("DEAD", reason=error_text(error)[:255])
            except BrokerError as error:
                # The task is done, and its successor may be published: the next attempt publishes it under the same ID.
                log.error("task %s[%s]: the next task of its chain: %s", trace.task.name, trace.request.id, error)
                return Outcome("QUEUED", 5, True, error_text(error)[:255])
        log.info("task %s[%s] succeeded", trace.task.name, trace.request.id)
        # The exchange of a task whose result is ignored ends, too: nothing waits for it at the broker.
        return Outcome("DELIVERED", response=NOTHING if self._ignores(trace) else text.encode("utf-8", "surrogatepass"))

    def _ignores(self, trace: Trace) -> bool:
        ignored = trace.request.meta.get("ignore_result")
        if ignored is None:
            ignored = trace.task.ignore_result
        return bool(self.app.conf.task_ignore_result if ignored is None else ignored)

    def _retry(self, trace: Trace, job: Job, error: Retry) -> Outcome:
        seconds = max(1, math.ceil(error.when or 0))
        log.info("task %s[%s] is tried again in %d s: %s", trace.task.name, trace.request.id, seconds, error)
        if error.sig is not None:
            return self._retry_other(trace, job, error, seconds)
        self.app._bears(job.channel, job.attempt)
        reason = error_text(error.exc) if error.exc is not None else "retry"
        return Outcome("QUEUED", min(seconds, 7 * 24 * 3600), True, reason[:255], (trace.text or "")[-1000:])

    def _retry_other(self, trace: Trace, job: Job, error: Retry, seconds: int) -> Outcome:
        """A retry with other arguments or options is another message."""
        again = dict(error.sig)
        retries = trace.request.retries + 1
        meta = {**trace.request.meta, "retries": retries, "id": trace.request.id}
        options = {k: v for k, v in again.items() if k not in ("args", "kwargs")}
        queue = options.pop("queue", None) or job.channel
        id = f"{job.message_id[:200]}.retry{retries}"
        name, message = trace.task._message(
            again["args"], again["kwargs"], task_id=id, countdown=seconds, queue=queue, meta=meta, **options
        )
        try:
            self.app._publish(name, message)
        except BrokerError as failure:
            return Outcome("QUEUED", seconds, True, error_text(failure)[:255])
        return Outcome("DELIVERED", response=NOTHING)

    def respond(self, job: Job, outcome: Optional[Outcome]) -> None:
        """Let the broker carry a large result back, before the job is done; others go along with its report."""
        try:
            post_large(self.app.client, job, outcome)
        except BrokerError as error:
            log.error("the result of job %s is lost: %s", job.id, error)

    # In a child process

    def child(self, frame: Mapping[str, Any]) -> Dict[str, Any]:
        """Run a job that the parent process sent."""
        job = Job(**{**frame["job"], "payload": frame["job"]["payload"].encode("utf-8", "surrogateescape")})
        value = read_job(job)
        outcome = self.run_job(job, self.app.tasks[value["task"]], value)
        if outcome is None:
            return {}
        return {
            "state": outcome.state,
            "delay": outcome.delay,
            "failed": outcome.failed,
            "reason": outcome.reason,
            "detail": outcome.detail,
            "response": None if outcome.response is None else outcome.response.decode("utf-8", "surrogateescape"),
        }

    def child_started(self) -> None:
        self.app.on_after_fork.send(self.app)
        signals.worker_process_init.send(self.app)


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def time_limit_outcome(seconds: float) -> Outcome:
    return Outcome("DEAD", reason=error_text(TimeLimitExceeded(f"{seconds:g} s"))[:255])


class AppWorker(Worker):
    """A worker of the tasks of an app."""

    def __init__(
        self,
        app: Any,
        queues: Optional[Sequence[str]] = None,
        concurrency: Optional[int] = None,
        pool: Optional[str] = None,
        lease: Optional[int] = None,
        wait: float = 20.0,
        stop_timeout: Optional[float] = None,
        health: Optional[str] = None,
        version: str = __version__,
        max_tasks_per_child: Optional[int] = None,
    ) -> None:
        app.finalize()
        self.app = app
        names = list(queues or [str(getattr(q, "name", q)) for q in app.conf.task_queues or ()] or [app.conf.task_default_queue])
        size = concurrency or app.conf.worker_concurrency or os.cpu_count() or 1
        if size < 1:
            raise ConfigurationError("concurrency must be at least 1")
        kind = pool or app.conf.worker_pool
        runner = AppRunner(app)
        made = make_pool(kind, size, runner)
        if kind == "prefork":
            made.most_tasks = max_tasks_per_child or app.conf.worker_max_tasks_per_child
        if lease is None:
            options = app.conf.broker_transport_options or {}
            if options.get("visibility_timeout") is not None:
                from ._settings import lease_of

                lease = lease_of(options["visibility_timeout"], "visibility_timeout")
        tasks: List[str] = app.tasks.names()
        self.names = names
        self._setup(app.client, names, made, lease, wait, stop_timeout, health, version, tasks)
        self.on_ready = self._ready
        self.on_stop = self._stopping

    def run(self, *, signals: bool = True) -> int:
        from . import signals as sent

        sent.worker_init.send(self)
        if hasattr(self._pool, "fork"):
            self._pool.fork()  # while no thread runs
        code = super().run(signals=signals)
        sent.worker_shutdown.send(self)
        return code

    def _ready(self) -> None:
        threading.Thread(target=self._register, name="penstock-beat", daemon=True).start()
        log.info("worker %s is ready: %s", self.client.worker, ", ".join(self.names))
        signals.worker_ready.send(self)

    def _register(self) -> None:
        """Let the queues keep results, and register the schedules; the broker may not be there yet."""
        from ._core import backoff

        n = 0
        while not self._engine.stopping.is_set():
            try:
                for queue in self.names:
                    self.app._make_queue(queue)
                self.app.register_schedules()
                return
            except (ConfigurationError, PenstockError) as error:
                if not isinstance(error, BrokerError) or n >= 20:
                    log.error("the schedules cannot be registered: %s", error)
                    return
                log.warning("the schedules cannot be registered yet: %s", error)
            n += 1
            self._engine.stopping.wait(backoff(n) + 0.2)

    def _stopping(self) -> None:
        signals.worker_shutting_down.send(self, sig="TERM", how="Warm", exitcode=0)


