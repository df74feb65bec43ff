"""A broker in memory, with a clock that tests set: for tests of programs that use penstock.

    broker = Broker()
    with broker.use(app):
        result = add.apply_async((2, 3), countdown=60)
        broker.run_for(app, 60)
        assert result.get() == 5

No thread, no socket and no sleep: jobs run when ``work`` or ``run_for`` says so.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import parse_qsl, unquote, urlsplit

from ._core import Call
from ._engine import Held, Outcome, Queue
from ._types import Job, Move
from ._wire import Answer
from .client import Client
from .worker import HandlerRunner

__all__ = ["Broker"]

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
MOST_JOBS = 100_000


class _Refusal(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Message:
    def __init__(self, number: int, id: str, headers: Mapping[str, str], body: bytes, at: datetime) -> None:
        self.number, self.id, self.body, self.stored = number, id, body, at
        self.content_type = headers.get("Content-Type", "application/octet-stream")
        self.priority = int(headers.get("X-Broker-Message-Priority", 0))
        names = [n for n in headers.get("X-Broker-Metadata-Headers", "").split(",") if n]
        self.headers = {n: headers[n] for n in names}
        if "X-Broker-Task" in headers:
            self.headers["X-Broker-Task"] = headers["X-Broker-Task"]
        ttl = headers.get("X-Broker-Message-TTL")
        self.ttl = None if ttl is None else _seconds(ttl)
        self.sent = dict(headers)


class _Job:
    def __init__(self, message: _Message, at: datetime) -> None:
        self.message = message
        self.id = f"job-{message.number}"
        self.status = "QUEUED"
        self.due = at
        self.attempts = self.given_back = self.leases_lost = 0
        self.lease = ""
        self.lease_end = at
        self.reason = self.detail = self.code = ""
        self.response: Optional[Tuple[bytes, str]] = None


class _Scheduled:
    def __init__(self, message: _Message, at: datetime, recurrence: str) -> None:
        self.message, self.at, self.recurrence = message, at, recurrence
        self.occurrence = 1
        self.over = False


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)(ms|s|)", text)
    if not found:
        raise _Refusal(400, "invalid_schedule")
    return int(found.group(1)) / (1000 if found.group(2) == "ms" else 1)


def _shown(at: datetime) -> str:
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _read_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


class Broker:
    """A broker in memory. Its time stands still until ``advance`` or ``run_for`` moves it."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start
        self._numbers = itertools.count(1)
        self._messages: Dict[str, Dict[str, _Message]] = {}
        self._jobs: Dict[str, List[_Job]] = {}  # of consumer q of channel q
        self._scheduled: Dict[Tuple[str, str], _Scheduled] = {}
        self._policy: Dict[str, Dict[str, Any]] = {}
        self._clients: List[Client] = []

    # For tests

    def client(self, **options: Any) -> Client:
        """A client of this broker."""
        client = Client("http://broker.test", **options)
        client._sockets = self  # type: ignore[assignment]
        client._sleep = lambda _: None
        return client

    @contextlib.contextmanager
    def use(self, app: Any) -> Iterator["Broker"]:
        """Let an app use this broker. ``get`` of a result does not wait: there is one, or a TimeoutError."""
        before, timeout, ready = app._client, app.conf.result_timeout, app._ready
        app._client, app.conf.result_timeout, app._ready = self.client(), 0.0, {}
        try:
            yield self
        finally:
            app._client, app.conf.result_timeout, app._ready = before, timeout, ready

    def advance(self, seconds: Union[float, timedelta]) -> None:
        """Move the clock: schedules are sent, leases end."""
        end = self.now + (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds))
        while True:
            due = [s for s in self._scheduled.values() if not s.over and s.at <= end]
            if not due:
                break
            first = min(due, key=lambda s: (s.at, s.message.number))
            self.now = max(self.now, first.at)
            self._send(first)
        self.now = end
        self._expire()

    def work(self, with_: Any, queues: Optional[Sequence[str]] = None) -> int:
        """Run what is due with the tasks of an app, or with handlers by task; returns how many jobs ran."""
        client = self.client()
        if isinstance(with_, Mapping):
            runner: Any = HandlerRunner(client, with_, True)
        else:
            from ._work import AppRunner

            runner = AppRunner(with_)
        ran = 0
        while ran < MOST_JOBS:
            self._expire()
            job = self._next(queues)
            if job is None:
                return ran
            q, claimed = job
            held = Held(claimed, Queue(q, q), 0.0, 30.0)
            outcome = runner.run(held)
            ran += 1
            if outcome is not None:
                self._end(client, claimed, outcome)
        raise AssertionError(f"the jobs never end: {ran} ran")

    def run_for(self, with_: Any, seconds: Union[float, timedelta], queues: Optional[Sequence[str]] = None) -> int:
        """Let time pass, and run each job when it is due."""
        end = self.now + (seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds))
        ran = self.work(with_, queues)
        while True:
            coming = [s.at for s in self._scheduled.values() if not s.over]
            coming += [j.due for jobs in self._jobs.values() for j in jobs if j.status == "QUEUED" and j.due > self.now]
            at = min(coming, default=end)
            if at > end:
                at = end
            self.advance(at - self.now)
            ran += self.work(with_, queues)
            if self.now >= end:
                return ran

    def dead_letters(self, queue: str) -> List[Dict[str, Any]]:
        """Message ID and reason of each dead letter."""
        return [
            {"MessageID": j.message.id, "Reason": j.reason, "ReasonCode": j.code}
            for j in self._jobs.get(queue, ())
            if j.status == "DEAD"
        ]

    def waiting(self, queue: str) -> List[str]:
        """The message IDs of the jobs that wait, those that are due later included."""
        return [j.message.id for j in self._jobs.get(queue, ()) if j.status == "QUEUED"]

    def _next(self, queues: Optional[Sequence[str]]) -> Optional[Tuple[str, Job]]:
        for q in list(queues) if queues else list(self._jobs):
            got = self._claim(q, 1, 30.0)
            if got:
                from ._types import job_of

                return q, job_of(q, q, got[0])
        return None

    def _end(self, client: Client, job: Job, outcome: Outcome) -> None:
        move = Move(
            job.id, job.lease, outcome.state, outcome.delay, outcome.failed, outcome.reason, outcome.detail, reply=outcome.reply
        )
        client._run(client._core.move(job.channel, job.consumer, [move]))

    # What a client sees

    def close(self) -> None:
        pass

    def send(self, call: Call) -> Answer:
        """The answer to a request."""
        parts = urlsplit(call.target)
        names = [unquote(p) for p in parts.path.strip("/").split("/")]
        query = dict(parse_qsl(parts.query))
        try:
            status, value, headers = self._route(call, names, query)
        except _Refusal as refusal:
            value = {"code": refusal.code, "detail": "The broker of penstock.testing says so.", "status": refusal.status}
            return Answer(refusal.status, {}, json.dumps(value).encode(), True)
        body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        return Answer(status, headers, body, True)

    def _route(self, call: Call, p: List[str], query: Dict[str, str]) -> Tuple[int, Any, Dict[str, str]]:
        shape = tuple(part if i % 2 == 0 or i > 4 else "*" for i, part in enumerate(p))
        routes: Dict[Tuple[str, ...], Callable[..., Any]] = {
            ("producer", "*"): lambda: (200, {"ID": p[1], "Token": "t"}),
            ("channel", "*"): lambda: (200, {"ID": p[1], "Token": "t"}),
            ("channel", "*", "consumer", "*"): lambda: self._consumer(call, p[1], p[3]),
        }
        if shape in routes:
            status, value = routes[shape]()
            return status, value, {}
        if len(p) == 3 and call.method == "POST":
            if p[2] == "broadcast":
                return self._publish(p[1], call.headers, call.body)
            if p[2] == "batch":
                return 200, self._batch(p[1], call.body), {}
        if len(p) == 5 and p[2] == "consumer" and p[4] == "claim":
            return 200, {"Result": self._claim(p[1], int(query["limit"]), float(query.get("timeout", 30)))}, {}
        if len(p) == 5 and p[2] == "consumer" and p[4] == "jobs":
            return 200, {"Result": [self._move(p[1], u) for u in json.loads(call.body)["Updates"]]}, {}
        if len(p) == 6 and p[2] == "consumer" and p[4] == "job":
            return self._job(call, p[1], p[5])
        if len(p) == 4 and p[2] == "scheduled-message":
            return self._one_scheduled(call, p[1], p[3])
        if p[2:3] == ["message"]:
            return self._message(call, p)
        raise _Refusal(404, "no_such_path")

    def _consumer(self, call: Call, channel: str, consumer: str) -> Tuple[int, Any]:
        new = consumer not in self._policy
        policy = self._policy.setdefault(consumer, {"Responses": "store", "MaxRetries": "1000", "Timeout": "32s"})
        self._jobs.setdefault(channel, [])
        if not new and call.headers.get("If-None-Match") == "*":
            raise _Refusal(412, "precondition_failed")
        return 201 if new else 200, {"ID": consumer, "Token": "t", "Type": "pull", "Policy": policy, "Inherited": []}

    def _publish(self, channel: str, headers: Mapping[str, str], body: bytes) -> Tuple[int, Any, Dict[str, str]]:
        id = headers.get("X-Broker-Message-ID") or f"m{next(self._numbers):019d}"
        known: Any = self._messages.get(channel, {}).get(id) or self._scheduled.get((channel, id))
        if known is not None:
            old = known.message if isinstance(known, _Scheduled) else known
            if (old.body, old.priority) != (body, int(headers.get("X-Broker-Message-Priority", 0))):
                raise _Refusal(409, "message_id_conflict")
            return 409, {"code": "duplicate_message_id"}, {"location": f"/channel/{channel}/message/{id}"}
        message = _Message(next(self._numbers), id, headers, body, self.now)
        at = self.now
        if "X-Broker-Delay" in headers:
            at += timedelta(seconds=_seconds(headers["X-Broker-Delay"]))
        if "X-Broker-Scheduled-For" in headers:
            at = _read_time(headers["X-Broker-Scheduled-For"])
            if at < self.now:
                raise _Refusal(412, "schedule_too_soon")
        recurrence = headers.get("X-Broker-Recurrence", "")
        if recurrence or at > self.now:
            first = _following(recurrence, self.now, None) if recurrence else at
            self._scheduled[(channel, id)] = _Scheduled(message, first, recurrence)
            return 201, None, {"location": f"/channel/{channel}/scheduled-message/{id}"}
        self._store(channel, message)
        return 201, None, {"location": f"/channel/{channel}/message/{id}"}

    def _store(self, channel: str, message: _Message) -> None:
        message.stored = self.now
        self._messages.setdefault(channel, {})[message.id] = message
        if channel in self._jobs:
            self._jobs[channel].append(_Job(message, self.now))

    def _batch(self, channel: str, body: bytes) -> bytes:
        out = []
        members = {
            "MessageID": "X-Broker-Message-ID", "Priority": "X-Broker-Message-Priority", "TTL": "X-Broker-Message-TTL",
            "Delay": "X-Broker-Delay", "ScheduledFor": "X-Broker-Scheduled-For", "Recurrence": "X-Broker-Recurrence",
            "Task": "X-Broker-Task", "ContentType": "Content-Type",
        }  # fmt: skip
        for text in body.decode("utf-8", "surrogatepass").splitlines():
            line = json.loads(text)
            headers = {members[k]: str(v) for k, v in line.items() if k in members}
            headers["X-Broker-Metadata-Headers"] = ",".join(line.get("Headers") or {})
            headers.update(line.get("Headers") or {})
            payload = base64.b64decode(line["PayloadBase64"]) if "PayloadBase64" in line else line["Payload"].encode()
            try:
                status, value, more = self._publish(channel, headers, payload)
                result: Dict[str, Any] = {"Status": status, "MessageID": line.get("MessageID"), "Location": more["location"]}
                result.update(value or {})
            except _Refusal as refusal:
                result = {"Status": refusal.status, "MessageID": line.get("MessageID"), "code": refusal.code}
            out.append(json.dumps(result))
        return "\n".join(out).encode()

    def _expire(self) -> None:
        for jobs in self._jobs.values():
            for j in jobs:
                if j.status == "INFLIGHT" and j.lease_end <= self.now:
                    j.status, j.lease, j.due = "QUEUED", "", self.now
                    j.leases_lost += 1
                ttl = j.message.ttl
                if j.status == "QUEUED" and ttl is not None and (self.now - j.message.stored).total_seconds() > ttl:
                    j.status, j.code, j.reason = "DEAD", "expired", "expired"

    def _claim(self, q: str, limit: int, lease: float) -> List[Dict[str, Any]]:
        due = [j for j in self._jobs.get(q, ()) if j.status == "QUEUED" and j.due <= self.now]
        out = []
        for j in sorted(due, key=lambda j: (-j.message.priority, j.message.number))[:limit]:
            j.status, j.lease = "INFLIGHT", f"lease-{next(self._numbers)}"
            j.lease_end = self.now + timedelta(seconds=lease)
            j.attempts += 1
            m = j.message
            shown = {"MessageID": m.id, "ContentType": m.content_type, "Headers": m.headers, "ProducerID": "penstock"}
            try:
                shown["Payload"] = m.body.decode()
            except UnicodeDecodeError:
                shown["Payload"], shown["PayloadEncoding"] = base64.b64encode(m.body).decode(), "base64"
            out.append(
                {
                    "ID": j.id, "Lease": j.lease, "Attempt": j.attempts, "LeasesLost": j.leases_lost, "GivenBack": j.given_back,
                    "Deadline": _shown(j.lease_end), "Priority": m.priority, "Message": shown,
                }
            )  # fmt: skip
        return out

    def _move(self, q: str, u: Mapping[str, Any]) -> Dict[str, Any]:
        j = next((j for j in self._jobs.get(q, ()) if j.id == u["ID"]), None)
        if j is None:
            return {"ID": u["ID"], "Status": 404, "code": "job_not_found"}
        if j.status == u["NextState"] and j.status in ("DELIVERED", "DEAD"):
            _respond(j, u)
            return {"ID": j.id, "Status": 202}
        if j.status != "INFLIGHT" or u.get("Lease", j.lease) != j.lease:
            return {"ID": j.id, "Status": 409, "code": "lease_lost"}
        if u["NextState"] == "INFLIGHT":
            j.lease_end = self.now + timedelta(seconds=u.get("Timeout") or 32)
            return {"ID": j.id, "Status": 202}
        j.status, j.lease = u["NextState"], ""
        _respond(j, u)
        j.reason, j.detail = u.get("Reason", ""), u.get("Detail", "")
        j.code = "by_consumer" if j.status == "DEAD" else ""
        if j.status == "QUEUED":
            failed = bool(u.get("Failed"))
            j.due = self.now + timedelta(seconds=u.get("Delay") or (5 if failed else 0))
            if not failed:
                j.attempts -= 1
                j.given_back += 1
        return {"ID": j.id, "Status": 202}

    def _job(self, call: Call, q: str, id: str) -> Tuple[int, Any, Dict[str, str]]:
        j = next((j for j in self._jobs.get(q, ()) if j.id == id), None)
        if j is None:
            raise _Refusal(404, "job_not_found")
        if call.method == "GET":
            return 200, {"ID": id, "AttemptHistory": [{"Answer": j.detail}]}, {}
        asked = json.loads(call.body)
        if asked["NextState"] == "INFLIGHT" and j.status == "QUEUED":
            j.status, j.lease = "INFLIGHT", f"lease-{next(self._numbers)}"
            j.lease_end = self.now + timedelta(seconds=32)
            return 202, {"Claimed": True}, {"x-broker-claimed": "true", "x-broker-lease": j.lease}
        done = self._move(q, {**asked, "ID": id})
        if done["Status"] != 202:
            raise _Refusal(done["Status"], done["code"])
        return 202, None, {"x-broker-claimed": "false"}

    def _message(self, call: Call, p: List[str]) -> Tuple[int, Any, Dict[str, str]]:
        m = self._messages.get(p[1], {}).get(p[3])
        if m is None:
            raise _Refusal(404, "message_not_found")
        j = next((j for j in self._jobs.get(p[1], ()) if j.message is m), None)
        if p[4:] == ["response"] and j is not None:
            if j.response is not None:
                raise _Refusal(409, "response_exists")
            j.response = (call.body, call.headers.get("Content-Type", ""))
            return 202, None, {}
        if p[4:] == ["responses"]:
            return 200, {"Result": [_exchange(j, p[1])] if j else [], "Complete": True}, {}
        jobs = [] if j is None else [
            {
                "ID": j.id, "ConsumerID": p[1], "Status": j.status, "Attempts": j.attempts, "Reason": j.reason,
                "ReasonCode": j.code, "LeasesLost": j.leases_lost, "GivenBack": j.given_back,
            }
        ]  # fmt: skip
        return 200, {"ID": m.id, "Payload": m.body.decode("utf-8", "replace"), "Priority": m.priority, "Jobs": jobs}, {}

    def _one_scheduled(self, call: Call, channel: str, id: str) -> Tuple[int, Any, Dict[str, str]]:
        s = self._scheduled.get((channel, id))
        if s is None:
            raise _Refusal(404, "scheduled_message_not_found")
        if call.method == "DELETE":
            if s.over:
                raise _Refusal(409, "already_dispatched")
            del self._scheduled[(channel, id)]
            return 204, None, {}
        if call.method == "PUT":
            headers = {**s.message.sent, **call.headers}
            recurrence = call.headers.get("X-Broker-Recurrence", s.recurrence)
            at = _following(recurrence, self.now, None) if recurrence else s.at
            if "X-Broker-Delay" in call.headers:
                recurrence, at = "", self.now + timedelta(seconds=_seconds(call.headers["X-Broker-Delay"]))
            if "X-Broker-Scheduled-For" in call.headers:
                recurrence, at = "", _read_time(call.headers["X-Broker-Scheduled-For"])
            message = _Message(s.message.number, id, headers, call.body or s.message.body, self.now)
            s = self._scheduled[(channel, id)] = _Scheduled(message, at, recurrence)
        shown = {
            "messageId": id, "payload": s.message.body.decode("utf-8", "replace"), "priority": s.message.priority,
            "dispatchSchedule": _shown(s.at), "status": "DISPATCHED" if s.over else "SCHEDULED", "occurrence": s.occurrence,
        }  # fmt: skip
        if s.recurrence:
            shown["recurrence"] = s.recurrence
        return 200, shown, {}

    def _send(self, s: _Scheduled) -> None:
        channel = next(key[0] for key, value in self._scheduled.items() if value is s)
        headers = dict(s.message.sent)
        id = s.message.id if not s.recurrence else f"{s.message.id}.{s.occurrence}"
        message = _Message(next(self._numbers), id, headers, s.message.body, self.now)
        self._store(channel, message)
        if not s.recurrence:
            s.over = True
            del self._scheduled[(channel, s.message.id)]
            return
        s.occurrence += 1
        count = re.match(r"R(\d+)/", s.recurrence)
        if count and s.occurrence > int(count.group(1)):
            s.over = True
        else:
            s.at = _following(s.recurrence, s.at, s.at)


def _respond(j: _Job, u: Mapping[str, Any]) -> None:
    """Keep the response that a report brings along; the first one counts."""
    if j.response is None and ("Response" in u or "ResponseBase64" in u):
        text = u.get("Response")
        body = base64.b64decode(u["ResponseBase64"]) if text is None else text.encode("utf-8", "surrogatepass")
        j.response = (body, u.get("ResponseType", ""))


def _exchange(j: _Job, consumer: str) -> Dict[str, Any]:
    state = "FAILED" if j.status == "DEAD" else "ARRIVED"
    entry: Dict[str, Any] = {"ConsumerID": consumer, "State": state, "Reason": j.code, "Attempt": j.attempts}
    if j.response is not None:
        body, kind = j.response
        entry.update(
            State="RESPONSE_RECEIVED_FROM_RECEIVER", Status=200, Headers={"Content-Type": kind},
            Body=base64.b64encode(body).decode(), BodyEncoding="base64",
        )  # fmt: skip
    return entry


def _following(recurrence: str, now: datetime, last: Optional[datetime]) -> datetime:
    """When a recurrence has its next message."""
    if recurrence.startswith("cron:"):
        return _next_cron(recurrence[5:], last or now)
    found = re.fullmatch(r"R\d*/([^/]+)/PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", recurrence)
    if not found:
        raise _Refusal(400, "invalid_recurrence")
    start, hours, minutes, seconds = found.groups()
    step = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))
    if last is not None:
        return last + step
    # The client reckons from the time of the machine: the first message comes after one interval here.
    begin = _read_time(start)
    return begin if begin >= now and begin - now <= step else now + step


def _next_cron(fields: str, after: datetime) -> datetime:
    zone: Any = timezone.utc
    found = re.match(r"(?:CRON_)?TZ=(\S+) ", fields)
    if found:
        from zoneinfo import ZoneInfo

        zone, fields = ZoneInfo(found.group(1)), fields[found.end() :]
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
    minute, hour, day, month, weekday = (_numbers(f, *b) for f, b in zip(fields.split(), bounds))
    at = after.astimezone(zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(5 * 366 * 24 * 60):
        if at.month not in month or at.day not in day or (at.weekday() + 1) % 7 not in weekday:
            at = (at + timedelta(days=1)).replace(hour=0, minute=0)
        elif at.hour not in hour or at.minute not in minute:
            at += timedelta(minutes=1)
        else:
            return at.astimezone(timezone.utc)
    raise _Refusal(400, "invalid_recurrence")


def _numbers(field: str, least: int, most: int) -> "set[int]":
    if field == "*":
        return set(range(least, most + 1))
    if field.startswith("*/"):
        return set(range(least, most + 1, int(field[2:])))
    return {int(part) for part in field.split(",")}
