"""The client of a broker, for programs with an event loop."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from datetime import datetime
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._core import Call, Core, Lost, Op
from ._manage import AsyncManage
from ._sockets import IDLE, MOST_IDLE, _text
from ._types import Job, Message, Move, Moved, Published, Response, Seconds, job_payload, messages_of
from ._wire import Answer, Reader, WireError, request_bytes
from .client import CLAIM_LIMIT, Base, _message, bulk_parts, check_moved, moves_for
from .exceptions import ConfigurationError

T = TypeVar("T")

__all__ = ["AsyncClient"]


class _Streams:
    """Connections on an event loop."""

    def __init__(self, core: Core, context: Optional[ssl.SSLContext]) -> None:
        self._address = core.address
        self._context = context or (ssl.create_default_context() if core.address.tls else None)
        self._idle: List[Tuple[asyncio.StreamReader, asyncio.StreamWriter, float]] = []
        self._owner: Any = None

    async def send(self, call: Call) -> Answer:
        try:
            return await asyncio.wait_for(self._send(call), call.timeout)
        except asyncio.TimeoutError:
            raise Lost(f"no answer within {call.timeout:g} s") from None
        except (OSError, WireError, asyncio.IncompleteReadError) as error:
            raise Lost(_text(error)) from None

    async def _send(self, call: Call) -> Answer:
        a = self._address
        data = request_bytes(call.method, call.target, a.authority, call.headers, call.body)
        reader, writer = self._take() or await asyncio.open_connection(
            a.host, a.port, ssl=self._context, server_hostname=a.host if self._context else None
        )
        answer: Optional[Answer] = None
        try:
            writer.write(data)
            try:
                await writer.drain()
            except (BrokenPipeError, ConnectionResetError):
                pass  # a refusal may have come before the whole request was sent
            parser = Reader(bodyless=call.method == "HEAD")
            while answer is None:
                answer = parser.feed(await reader.read(1 << 16))
            return answer
        finally:
            if answer is not None and answer.keep and len(self._idle) < MOST_IDLE:
                self._idle.append((reader, writer, time.monotonic()))
            else:
                writer.close()

    def _take(self) -> "Optional[Tuple[asyncio.StreamReader, asyncio.StreamWriter]]":
        owner = (os.getpid(), id(asyncio.get_running_loop()))
        if owner != self._owner:  # connections belong to one loop
            self._owner, self._idle = owner, []
        while self._idle:
            reader, writer, rested = self._idle.pop()
            if time.monotonic() - rested < IDLE and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for _, writer, _ in idle:
            writer.close()
        for _, writer, _ in idle:
            try:
                await asyncio.wait_for(writer.wait_closed(), 1.0)
            except (OSError, asyncio.TimeoutError):
                pass


class AsyncClient(Base):
    """The methods of Client as coroutines."""

    def _connect(self, context: Optional[ssl.SSLContext]) -> None:
        self._streams = _Streams(self._core, context)
        self.manage = AsyncManage(self._core, self._run)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        await self._streams.close()

    async def _run(self, op: Op[T]) -> T:
        try:
            step = next(op)
            while True:
                if isinstance(step, Call):
                    try:
                        answer = await self._streams.send(step)
                    except Lost as lost:
                        step = op.throw(lost)
                        continue
                    step = op.send(answer)
                else:
                    await asyncio.sleep(step.seconds)
                    step = op.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def publish(self, channel: str, payload: Any = b"", **options: Any) -> Published:
        """As ``Client.publish``, with its options."""
        return await self._run(self._core.publish(channel, _message(payload, options)))

    async def publish_many(self, channel: str, messages: Iterable[Any]) -> List[Published]:
        return await self._run(self._core.publish_many(channel, messages_of(list(messages))))

    async def enqueue(
        self,
        queue: str,
        task: str,
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        *,
        meta: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> Published:
        """As ``Client.enqueue``, with its options."""
        payload = job_payload(task, args, kwargs, meta)
        message = _message(payload, {"content_type": "application/json", "task": task, **options})
        return await self._run(self._core.publish(queue, message, queue=True))

    async def request(self, channel: str, payload: Any = b"", *, wait: float = 10.0, **options: Any) -> Response:
        return await self._run(self._core.request(channel, _message(payload, options), wait))

    async def schedule(
        self,
        channel: str,
        payload: Any = b"",
        *,
        at: Optional[datetime] = None,
        delay: Optional[Seconds] = None,
        recurrence: Optional[str] = None,
        **options: Any,
    ) -> Published:
        if at is None and delay is None and recurrence is None:
            raise ConfigurationError("schedule needs at, delay or recurrence")
        message = _message(payload, {**options, "at": at, "delay": delay, "recurrence": recurrence})
        return await self._run(self._core.publish(channel, message))

    async def scheduled(self, channel: str, message_id: str) -> Optional[Dict[str, Any]]:
        return await self._run(self._core.scheduled("GET", channel, message_id))

    async def reschedule(self, channel: str, message_id: str, **changes: Any) -> Optional[Dict[str, Any]]:
        message: Message = _message(changes.pop("payload", b""), changes)
        return await self._run(self._core.reschedule(channel, message_id, message, bool(message.payload)))

    async def unschedule(self, channel: str, message_id: str) -> bool:
        return await self._run(self._core.scheduled("DELETE", channel, message_id)) is not None

    async def bulk(
        self, channel: str, body: "Union[bytes, str, Iterable[Any]]", *, format: str = "ndjson", headers: Optional[Mapping[str, str]] = None
    ) -> str:
        data, content_type = bulk_parts(body, format)
        return await self._run(self._core.bulk(channel, data, content_type, headers or {}))

    async def claim(
        self, channel: str, consumer: Optional[str] = None, *, limit: int = 1, wait: float = 0.0, lease: Optional[int] = None
    ) -> List[Job]:
        got = await self._run(self._core.claim(channel, consumer or channel, min(limit, CLAIM_LIMIT), min(wait, 20.0), lease))
        return got[0]

    async def ack(self, job: "Union[Job, Sequence[Job]]") -> List[Moved]:
        return await self._move(job, moves_for(job, "DELIVERED"))

    async def nack(
        self, job: "Union[Job, Sequence[Job]]", *, delay: Seconds = 0, failed: bool = True, reason: str = "", detail: str = ""
    ) -> List[Moved]:
        return await self._move(job, moves_for(job, "QUEUED", delay, failed, reason, detail))

    async def reject(self, job: "Union[Job, Sequence[Job]]", *, reason: str = "", detail: str = "") -> List[Moved]:
        return await self._move(job, moves_for(job, "DEAD", 0, False, reason, detail))

    async def extend(self, job: "Union[Job, Sequence[Job]]", *, lease: int = 0) -> List[Moved]:
        return await self._move(job, moves_for(job, "INFLIGHT", lease=lease))

    async def _move(self, job: "Union[Job, Sequence[Job]]", moves: "Dict[Tuple[str, str], List[Move]]") -> List[Moved]:
        by_id: Dict[str, Moved] = {}
        for (channel, consumer), of in moves.items():
            for i in range(0, len(of), CLAIM_LIMIT):
                for moved in await self._run(self._core.move(channel, consumer, of[i : i + CLAIM_LIMIT])):
                    by_id[moved.id] = moved
        jobs = [job] if isinstance(job, Job) else job
        return check_moved(job, [by_id[j.id] for j in jobs])

    async def respond(self, job: Job, payload: Any, *, content_type: Optional[str] = None) -> bool:
        return await self._run(self._core.respond(job.channel, job.consumer, job.message_id, payload, content_type))

    async def responses(self, channel: str, message_id: str, *, wait: float = 0.0, until: str = "all") -> List[Response]:
        return await self._run(self._core.responses(channel, message_id, wait, until))
