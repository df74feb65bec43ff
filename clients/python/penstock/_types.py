"""What goes to a broker and comes from it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .exceptions import BrokerError, ConfigurationError, EncodeError

Seconds = Union[int, float, timedelta]


def seconds_of(value: Seconds) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def duration_text(value: Seconds) -> str:
    """A duration as the broker reads it, never shorter than what was given."""
    seconds = seconds_of(value)
    if seconds != seconds or seconds < 0:
        raise ConfigurationError("a duration must not be negative")
    whole = int(seconds)
    return f"{whole}s" if whole == seconds else f"{-int(-seconds * 1000 // 1)}ms"


def time_text(at: datetime) -> str:
    """A time in RFC 3339. One without a zone is in UTC."""
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    at = at.astimezone(timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def to_json(value: Any) -> str:
    """Compact JSON. What is no JSON is an EncodeError."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_more)
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"this cannot be sent as JSON: {error}") from None


def _more(value: Any) -> Any:
    import decimal
    import enum
    import uuid

    if isinstance(value, datetime):
        return value.isoformat()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} is no JSON")


def encode_payload(payload: Any, content_type: Optional[str]) -> "tuple[bytes, str]":
    """Bytes are sent as they are, a text in UTF-8, anything else as JSON."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload), content_type or "application/octet-stream"
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogatepass"), content_type or "text/plain; charset=utf-8"
    return to_json(payload).encode("utf-8", "surrogatepass"), content_type or "application/json"


@dataclass
class Message:
    """A message to publish. All but the payload may be left out."""

    payload: Any = b""
    content_type: Optional[str] = None
    message_id: Optional[str] = None
    priority: Optional[int] = None
    headers: Optional[Mapping[str, str]] = None
    delay: Optional[Seconds] = None
    at: Optional[datetime] = None
    recurrence: Optional[str] = None
    ttl: Optional[Seconds] = None
    ordering_key: Optional[str] = None
    consumers: Optional[Sequence[str]] = None
    task: Optional[str] = None
    content_encoding: Optional[str] = None

    def request_headers(self) -> Dict[str, str]:
        """The headers of a publish, without those of the payload and the tokens."""
        out: Dict[str, str] = {}
        for name, value in (
            ("X-Broker-Message-ID", self.message_id),
            ("X-Broker-Message-Priority", None if self.priority is None else str(int(self.priority))),
            ("X-Broker-Delay", None if self.delay is None else duration_text(self.delay)),
            ("X-Broker-Scheduled-For", None if self.at is None else time_text(self.at)),
            ("X-Broker-Recurrence", self.recurrence),
            ("X-Broker-Message-TTL", None if self.ttl is None else duration_text(self.ttl)),
            ("X-Broker-Ordering-Key", self.ordering_key),
            ("X-Broker-Consumers", None if self.consumers is None else ",".join(self.consumers)),
            ("X-Broker-Task", self.task),
            ("Content-Encoding", self.content_encoding),
        ):
            if value is not None:
                out[name] = value
        if self.headers:
            out["X-Broker-Metadata-Headers"] = ",".join(self.headers)
            out.update({name: str(value) for name, value in self.headers.items()})
        return out

    def line(self) -> str:
        """The message as a line of a batch."""
        out: Dict[str, Any] = {}
        for name, value in (
            ("MessageID", self.message_id),
            ("Priority", self.priority),
            ("Delay", None if self.delay is None else duration_text(self.delay)),
            ("ScheduledFor", None if self.at is None else time_text(self.at)),
            ("Recurrence", self.recurrence),
            ("TTL", None if self.ttl is None else duration_text(self.ttl)),
            ("OrderingKey", self.ordering_key),
            ("Consumers", None if self.consumers is None else list(self.consumers)),
            ("Task", self.task),
            ("ContentEncoding", self.content_encoding),
            ("Headers", None if not self.headers else {k: str(v) for k, v in self.headers.items()}),
        ):
            if value is not None:
                out[name] = value
        body, out["ContentType"] = encode_payload(self.payload, self.content_type)
        try:
            out["Payload"] = body.decode("utf-8")
        except UnicodeDecodeError:
            out["PayloadBase64"] = base64.b64encode(body).decode("ascii")
        return to_json(out)


def job_payload(
    task: str, args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, meta: Optional[Mapping[str, Any]] = None
) -> bytes:
    """A job in the one form that all clients read: ``{"task","args","kwargs","meta"}``."""
    job = {"task": task, "args": list(args), "kwargs": dict(kwargs or {}), "meta": dict(meta or {})}
    return to_json(job).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Published:
    """What became of a message that was published.

    ``duplicate`` says that the broker had it already. ``error`` is only set by ``publish_many``.
    """

    message_id: str
    status: int = 201
    location: str = ""
    duplicate: bool = False
    recipients: Optional[int] = None
    ack: str = ""
    error: Optional[BrokerError] = None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Response:
    """The response of a consumer to a message."""

    consumer_id: str
    status: int
    body: bytes
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    reason: str = ""
    truncated: bool = False
    attempt: int = 0
    message_id: str = ""

    @property
    def received(self) -> bool:
        """There is a response; otherwise it is awaited, or there will be none."""
        return self.state.startswith("RESPONSE_")

    @property
    def failed(self) -> bool:
        return self.state == "FAILED"

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Job:
    """A job that was claimed: a message, and the right to work on it until the lease ends."""

    channel: str
    consumer: str
    id: str
    lease: str = field(repr=False)
    attempt: int
    message_id: str
    payload: bytes
    headers: Dict[str, str]
    content_type: str = ""
    content_encoding: str = ""
    producer_id: str = ""
    priority: int = 0
    leases_lost: int = 0
    given_back: int = 0
    deadline: str = ""
    replay: str = ""

    @property
    def text(self) -> str:
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.payload)


def job_of(channel: str, consumer: str, entry: Mapping[str, Any]) -> Job:
    """Reads an entry of the answer to a claim. What is none is a ValueError or TypeError."""
    message = entry["Message"]
    payload = message["Payload"]
    if message.get("PayloadEncoding") == "base64":
        body = base64.b64decode(payload, validate=True)
    else:
        body = str(payload).encode("utf-8", "surrogatepass")
    id, lease, attempt, message_id = entry["ID"], entry["Lease"], entry["Attempt"], message["MessageID"]
    if not (isinstance(id, str) and isinstance(lease, str) and isinstance(attempt, int) and isinstance(message_id, str)):
        raise TypeError("no job")
    return Job(
        channel=channel,
        consumer=consumer,
        id=id,
        lease=lease,
        attempt=attempt,
        message_id=message_id,
        payload=body,
        headers=dict(message.get("Headers") or {}),
        content_type=str(message.get("ContentType") or ""),
        content_encoding=str(message.get("ContentEncoding") or ""),
        producer_id=str(message.get("ProducerID") or ""),
        priority=int(entry.get("Priority") or 0),
        leases_lost=int(entry.get("LeasesLost") or 0),
        given_back=int(entry.get("GivenBack") or 0),
        deadline=str(entry.get("Deadline") or ""),
        replay=str(entry.get("Replay") or ""),
    )


@dataclass(frozen=True)
class Reply:
    """The response to the message of a job, as a report brings it along."""

    body: bytes
    content_type: str = "application/json"

    def members(self) -> Dict[str, str]:
        out = {"ResponseType": self.content_type} if self.content_type else {}
        try:
            out["Response"] = self.body.decode("utf-8")
        except UnicodeDecodeError:
            out["ResponseBase64"] = base64.b64encode(self.body).decode("ascii")
        return out

    def size(self) -> int:
        """How much of a report it takes, in bytes."""
        return len(to_json(self.members()).encode("utf-8"))


@dataclass
class Move:
    """What to do with a claimed job: a member of the request ``jobs``."""

    id: str
    lease: str = field(repr=False)
    state: str  # DELIVERED, DEAD, QUEUED, INFLIGHT
    delay: int = 0
    failed: bool = False
    reason: str = ""
    detail: str = ""
    extra: int = 0
    timeout: int = 0
    reply: Optional[Reply] = None

    def text(self) -> str:
        out: Dict[str, Any] = {"ID": self.id, "Lease": self.lease, "NextState": self.state}
        if self.delay:
            out["Delay"] = self.delay
        if self.failed:
            out["Failed"] = True
        if self.reason:
            out["Reason"] = self.reason[:255]
        if self.detail:
            out["Detail"] = self.detail[:1024]
        if self.extra:
            out["IncrementalTimeout"] = self.extra
        if self.timeout:
            out["Timeout"] = self.timeout
        if self.reply is not None:
            out.update(self.reply.members())
        return to_json(out)


@dataclass(frozen=True)
class Moved:
    """The answer to a Move: 202, or the status and code of the refusal."""

    id: str
    status: int
    code: str = ""

    @property
    def ok(self) -> bool:
        return self.status < 300


def moves_body(moves: Sequence[Move]) -> bytes:
    return ('{"Updates":[' + ",".join(move.text() for move in moves) + "]}").encode("utf-8", "replace")


def messages_of(entries: "Sequence[Any]") -> List[Message]:
    out = []
    for entry in entries:
        if isinstance(entry, Message):
            out.append(entry)
        elif isinstance(entry, Mapping):
            try:
                out.append(Message(**entry))
            except TypeError as error:
                raise ConfigurationError(f"this is no message: {error}") from None
        else:
            out.append(Message(entry))
    return out
