"""The client of a broker, for programs with threads."""

from __future__ import annotations

import ssl
import time
from datetime import datetime
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._core import Call, Core, Lost, Op, Options
from ._manage import Manage
from ._sockets import Sockets
from ._types import Job, Message, Move, Moved, Published, Response, Seconds, job_payload, messages_of, seconds_of
from .exceptions import ConfigurationError, LeaseLost, RefusedError

T = TypeVar("T")

CLAIM_LIMIT = 500

__all__ = ["Client", "Manage"]


def moves_for(
    jobs: "Union[Job, Sequence[Job]]", state: str, delay: Seconds = 0, failed: bool = False, reason: str = "", detail: str = "", lease: int = 0
) -> "Dict[Tuple[str, str], List[Move]]":
    """The moves of jobs, by their queues."""
    out: Dict[Tuple[str, str], List[Move]] = {}
    for job in [jobs] if isinstance(jobs, Job) else jobs:
        move = Move(job.id, job.lease, state, -int(-seconds_of(delay) // 1), failed, reason, detail, timeout=lease)
        out.setdefault((job.channel, job.consumer), []).append(move)
    return out


def check_moved(job: "Union[Job, Sequence[Job]]", moved: List[Moved]) -> List[Moved]:
    """Of one job a refusal is an error."""
    if isinstance(job, Job) and moved and not moved[0].ok:
        if moved[0].code == "lease_lost":
            raise LeaseLost(f"the lease of job {job.id} is lost")
        raise RefusedError(f"job {job.id}: {moved[0].status} {moved[0].code}", status=moved[0].status, code=moved[0].code)
    return moved


def bulk_parts(body: "Union[bytes, str, Iterable[Any]]", format: str) -> Tuple[bytes, str]:
    if isinstance(body, str):
        data = body.encode("utf-8")
    elif isinstance(body, (bytes, bytearray)):
        data = bytes(body)
    elif format == "csv":
        raise ConfigurationError("the body of a CSV bulk is bytes or a text")
    else:
        data = "".join(message.line() + "\n" for message in messages_of(list(body))).encode("utf-8", "surrogatepass")
    types = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
    if format not in types:
        raise ConfigurationError(f"the format of a bulk is csv or ndjson, not {format!r}")
    return data, types[format]


class Base:
    """What Client and AsyncClient are made with."""

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        producer_id: Optional[str] = None,
        producer_token: Optional[str] = None,
        channel_token: Optional[str] = None,
        consumer_token: Optional[str] = None,
        token: Optional[str] = None,
        admin_token: Optional[str] = None,
        timeout: float = 10.0,
        tries: int = 5,
        worker: Optional[str] = None,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        options = Options(
            url, producer_id, producer_token, channel_token, consumer_token, token, admin_token, timeout, tries, worker
        )
        self._core = Core(options)
        self._connect(ssl_context)

    def _connect(self, context: Optional[ssl.SSLContext]) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._core.address.url

    @property
    def worker(self) -> str:
        """The name in X-Broker-Worker."""
        return self._core.worker


class Client(Base):
    """Speaks with the broker at ``url`` (PENSTOCK_URL, or http://127.0.0.1:8080).

    Queue ``q`` is consumer ``q`` of channel ``q``. Producers, channels and consumers are made when they
    are first needed, unless their tokens are given. All methods may be called by several threads. Each
    request has a time-out. One without a usable answer is tried again, a message with the same ID.
    """

    def _connect(self, context: Optional[ssl.SSLContext]) -> None:
        self._sockets = Sockets(self._core.address, context)
        self._sleep: Callable[[float], Any] = time.sleep
        self.manage = Manage(self._core, self._run)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A client that is used again opens new ones."""
        self._sockets.close()

    def _run(self, op: Op[T]) -> T:
        """Run an operation: send its calls, sleep its pauses."""
        try:
            step = next(op)
            while True:
                if isinstance(step, Call):
                    try:
                        answer = self._sockets.send(step)
                    except Lost as lost:
                        step = op.throw(lost)
                        continue
                    step = op.send(answer)
                else:
                    self._sleep(step.seconds)
                    step = op.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def publish(
        self,
        channel: str,
        payload: Any = b"",
        *,
        content_type: Optional[str] = None,
        message_id: Optional[str] = None,
        priority: Optional[int] = None,
        headers: Optional[Mapping[str, str]] = None,
        delay: Optional[Seconds] = None,
        at: Optional[datetime] = None,
        recurrence: Optional[str] = None,
        ttl: Optional[Seconds] = None,
        ordering_key: Optional[str] = None,
        consumers: Optional[Sequence[str]] = None,
        task: Optional[str] = None,
        content_encoding: Optional[str] = None,
    ) -> Published:
        """Publish a message to each consumer of a channel. When this returns, it is on disk.

        Bytes are sent as they are, a text in UTF-8, anything else as JSON. An UnavailableError says that
        the message may be stored: publish it again with the same ``message_id``.
        """
        message = Message(
            payload, content_type, message_id, priority, headers, delay, at, recurrence, ttl, ordering_key, consumers, task,
            content_encoding,
        )
        return self._run(self._core.publish(channel, message))

    def publish_many(self, channel: str, messages: Iterable[Any]) -> List[Published]:
        """Publish many messages: Message, a dict of its members, or a payload. The results have the order
        of the messages; ``error`` of one says why that message was not stored. None of them is raised."""
        return self._run(self._core.publish_many(channel, messages_of(list(messages))))

    def enqueue(
        self,
        queue: str,
        task: str,
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        *,
        meta: Optional[Mapping[str, Any]] = None,
        message_id: Optional[str] = None,
        priority: Optional[int] = None,
        headers: Optional[Mapping[str, str]] = None,
        delay: Optional[Seconds] = None,
        at: Optional[datetime] = None,
        ttl: Optional[Seconds] = None,
        ordering_key: Optional[str] = None,
    ) -> Published:
        """Publish a job of a task to a queue, for a worker of any language."""
        payload = job_payload(task, args, kwargs, meta)
        message = Message(
            payload, "application/json", message_id, priority, headers, delay, at, None, ttl, ordering_key, None, task
        )
        return self._run(self._core.publish(queue, message, queue=True))

    def request(self, channel: str, payload: Any = b"", *, wait: float = 10.0, **options: Any) -> Response:
        """Publish a message and wait for the first response, at most 60 seconds.

        If none has come, ``received`` of the response is false: ``responses`` shows it later. The options
        are those of ``publish``.
        """
        return self._run(self._core.request(channel, _message(payload, options), wait))

    def schedule(
        self,
        channel: str,
        payload: Any = b"",
        *,
        at: Optional[datetime] = None,
        delay: Optional[Seconds] = None,
        recurrence: Optional[str] = None,
        **options: Any,
    ) -> Published:
        """Publish a message at a time, after a delay, or again and again."""
        if at is None and delay is None and recurrence is None:
            raise ConfigurationError("schedule needs at, delay or recurrence")
        message = _message(payload, {**options, "at": at, "delay": delay, "recurrence": recurrence})
        return self._run(self._core.publish(channel, message))

    def scheduled(self, channel: str, message_id: str) -> Optional[Dict[str, Any]]:
        """The scheduled message, None if there is none."""
        return self._run(self._core.scheduled("GET", channel, message_id))

    def reschedule(self, channel: str, message_id: str, **changes: Any) -> Optional[Dict[str, Any]]:
        """Change time, recurrence or content of a scheduled message. None: its time has come."""
        message = _message(changes.pop("payload", b""), changes)
        return self._run(self._core.reschedule(channel, message_id, message, bool(message.payload)))

    def unschedule(self, channel: str, message_id: str) -> bool:
        """Delete a scheduled message. False: there is none, or its time has come."""
        return self._run(self._core.scheduled("DELETE", channel, message_id)) is not None

    def bulk(
        self, channel: str, body: "Union[bytes, str, Iterable[Any]]", *, format: str = "ndjson", headers: Optional[Mapping[str, str]] = None
    ) -> str:
        """Publish a file of messages in one call and return the ID of the bulk. ``manage.bulk`` shows how
        far it is. An UnavailableError says that it may run."""
        data, content_type = bulk_parts(body, format)
        return self._run(self._core.bulk(channel, data, content_type, headers or {}))

    def claim(
        self, channel: str, consumer: Optional[str] = None, *, limit: int = 1, wait: float = 0.0, lease: Optional[int] = None
    ) -> List[Job]:
        """Lease up to ``limit`` due jobs of a pull consumer, after a wait of at most 20 s for the first."""
        got = self._run(self._core.claim(channel, consumer or channel, min(limit, CLAIM_LIMIT), min(wait, 20.0), lease))
        return got[0]

    def ack(self, job: "Union[Job, Sequence[Job]]") -> List[Moved]:
        """The job is done. LeaseLost: it is another worker's. Of several jobs each has its own answer."""
        return self._move(job, moves_for(job, "DELIVERED"))

    def nack(
        self, job: "Union[Job, Sequence[Job]]", *, delay: Seconds = 0, failed: bool = True, reason: str = "", detail: str = ""
    ) -> List[Moved]:
        """Give the job back. With ``failed`` the attempt counts; without ``delay`` the consumer's backoff
        follows then."""
        return self._move(job, moves_for(job, "QUEUED", delay, failed, reason, detail))

    def reject(self, job: "Union[Job, Sequence[Job]]", *, reason: str = "", detail: str = "") -> List[Moved]:
        """The job becomes a dead letter."""
        return self._move(job, moves_for(job, "DEAD", 0, False, reason, detail))

    def extend(self, job: "Union[Job, Sequence[Job]]", *, lease: int = 0) -> List[Moved]:
        """Keep the job longer: ``lease`` seconds from now, or as long as the consumer says."""
        return self._move(job, moves_for(job, "INFLIGHT", lease=lease))

    def _move(self, job: "Union[Job, Sequence[Job]]", moves: "Dict[Tuple[str, str], List[Move]]") -> List[Moved]:
        by_id: Dict[str, Moved] = {}
        for (channel, consumer), of in moves.items():
            for i in range(0, len(of), CLAIM_LIMIT):
                for moved in self._run(self._core.move(channel, consumer, of[i : i + CLAIM_LIMIT])):
                    by_id[moved.id] = moved
        jobs = [job] if isinstance(job, Job) else job
        return check_moved(job, [by_id[j.id] for j in jobs])

    def respond(self, job: Job, payload: Any, *, content_type: Optional[str] = None) -> bool:
        """Post the response to the message of a job. False: there is one already."""
        return self._run(self._core.respond(job.channel, job.consumer, job.message_id, payload, content_type))

    def responses(self, channel: str, message_id: str, *, wait: float = 0.0, until: str = "all") -> List[Response]:
        """The responses to a message, one entry for each consumer that responds, after a wait."""
        return self._run(self._core.responses(channel, message_id, wait, until))


def _message(payload: Any, options: Mapping[str, Any]) -> Message:
    try:
        return Message(payload, **options)
    except TypeError as error:
        raise ConfigurationError(f"unknown option: {str(error).split(')')[-1].strip()}") from None
