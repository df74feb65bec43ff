"""Periodic tasks as schedules of the broker."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from typing import Any, Dict, List, Optional, Tuple

from ._core import Core, Op, path, refusal
from ._task import OPTIONS, check_options
from ._wire import Answer
from .exceptions import ConfigurationError, RefusedError
from .schedules import maybe_schedule

log = logging.getLogger("penstock.beat")


def entry_of(schedule: Any, sig: Any, args: Any, kwargs: Any, name: Optional[str], options: Dict[str, Any]) -> Tuple[str, Dict[str, Any]]:
    """An entry of ``beat_schedule`` from what add_periodic_task is given."""
    check_options(options, OPTIONS, "add_periodic_task")
    if hasattr(sig, "step"):
        own_args, own_kwargs, own = sig["args"], sig["kwargs"], sig["options"]
        task = sig["task"]
    else:
        own_args, own_kwargs, own, task = [], {}, {}, getattr(sig, "name", sig)
    entry = {
        "task": task,
        "schedule": maybe_schedule(schedule),
        "args": list(args or ()) or list(own_args),
        "kwargs": {**own_kwargs, **(kwargs or {})},
        "options": {**own, **options},
    }
    key = name or f"{task}({', '.join([repr(a) for a in entry['args']] + [f'{k}={v!r}' for k, v in entry['kwargs'].items()])})"
    return key, entry


def identity(app_name: str, key: str) -> str:
    """The ID of a schedule: the same in every process of the app."""
    text = f"beat.{app_name}.{key}"
    plain = re.sub(r"[^A-Za-z0-9._~:@-]", "-", text)
    if plain == text and len(plain) <= 200:
        return plain
    return f"{plain[:150]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def register(app: Any) -> List[str]:
    """Register each entry under one identity. A process that comes second changes nothing, unless the
    entry is another one now."""
    out = []
    for key, entry in list(app.conf.beat_schedule.items()):
        if not isinstance(entry, dict) or "task" not in entry or "schedule" not in entry:
            raise ConfigurationError(f"beat_schedule: the entry {key!r} needs task and schedule")
        schedule = maybe_schedule(entry["schedule"])
        options = dict(entry.get("options") or {})
        check_options(options, OPTIONS, f"beat_schedule: the entry {key!r}")
        for name in ("countdown", "eta", "task_id"):
            options.pop(name, None)
        named = getattr(entry["task"], "name", entry["task"])
        task = app._task_named(named)
        id = identity(app.main or "app", key)
        queue, message = task._message(list(entry.get("args") or ()), dict(entry.get("kwargs") or {}), task_id=id, **options)
        message.payload = _without_times(message.payload)
        zone = app.conf.timezone if isinstance(app.conf.timezone, str) else str(app.conf.timezone)
        _put(app, queue, id, message, schedule, zone)
        out.append(id)
    return out


def _without_times(payload: bytes) -> bytes:
    """The payload is the same in each message of the schedule."""
    value = json.loads(payload)
    for name in ("eta", "expires"):
        value["meta"].pop(name, None)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _put(app: Any, queue: str, id: str, message: Any, schedule: Any, zone: Optional[str]) -> None:
    client = app.client
    for _ in range(5):
        there = client.scheduled(queue, id)
        if there is None or there.get("status") == "DISPATCHED":
            message.message_id, message.recurrence = id, schedule.recurrence(zone)
            try:
                app._publish(queue, message)
                log.info("schedule %s is registered: %s", id, message.recurrence)
                return
            except RefusedError as error:
                if error.code not in ("message_id_conflict", "schedule_too_soon"):
                    raise
            continue  # another process was first
        same = (
            schedule.same(str(there.get("recurrence") or ""), zone)
            and str(there.get("payload")) == message.payload.decode("utf-8")
            and int(there.get("priority") or 0) == int(message.priority or 0)
        )
        if same:
            return
        message.recurrence = schedule.recurrence(zone)
        if client._run(client._core.reschedule(queue, id, message, True)) is not None:
            log.info("schedule %s is changed: %s", id, message.recurrence)
            return
    raise RefusedError(f"the schedule {id} cannot be registered: other processes change it again and again")


def end_job(core: Core, queue: str, job: str, reason: str) -> Op[bool]:
    """Take a job that waits, and make it a dead letter. False: a worker has it, or it is over."""
    target = path("channel", queue, "consumer", queue, "job", job)

    def take(tokens: Dict[str, str]) -> Op[str]:
        def read(answer: Answer) -> str:
            if answer.status in (400, 404, 409, 429) or answer.headers.get("x-broker-claimed") == "false":
                return ""
            if answer.status >= 300:
                raise refusal(answer, f"job {job}")
            return answer.headers.get("x-broker-lease", "")

        call = core.call("POST", target, tokens, b'{"NextState":"INFLIGHT"}')
        return (yield from core.ask(call, f"job {job}", read))

    def end(tokens: Dict[str, str]) -> Op[bool]:
        body = json.dumps({"NextState": "DEAD", "Lease": lease, "Reason": reason}).encode()
        call = core.call("POST", target, tokens, body)
        return (yield from core.ask(call, f"job {job}", lambda answer: answer.status == 202))

    lease: str = yield from core.admitted(lambda: core.as_consumer(queue, queue), take, queue, queue)
    if not lease:
        return False
    return (yield from core.admitted(lambda: core.as_consumer(queue, queue), end, queue, queue))
