"""The routes of management, for Client and AsyncClient."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, Dict, List, Mapping, Optional, TypeVar

from ._core import Core, Op, path

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")

__all__ = ["AsyncManage", "Manage"]


def fields_of(fields: Mapping[str, Any]) -> Dict[str, Any]:
    """Python's names of fields as the broker's: ``max_retries`` is ``maxRetries``."""
    out = {}
    for name, value in fields.items():
        head, *rest = name.rstrip("_").split("_")
        out[head + "".join(part.capitalize() for part in rest)] = value
    return out


def _consumer(channel: str, consumer: Optional[str], *more: str) -> str:
    return path("channel", channel, "consumer", consumer or channel, *more)


class _Ops:
    """The methods of Manage, as operations."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def call(
        self, method: str, target: str, fields: Optional[Mapping[str, Any]] = None, headers: Optional[Mapping[str, str]] = None
    ) -> Op[Any]:
        """Any route of management: ``manage("PUT", "/channel/orders", {"duplicates": "acknowledge"})``."""
        return self.core.manage(method, target, None if fields is None else fields_of(fields), headers)

    def _object(self, method: str, target: str, fields: Optional[Mapping[str, Any]] = None) -> Op[Dict[str, Any]]:
        got: Dict[str, Any] = yield from self.call(method, target, fields)
        return got

    def _list(self, target: str, most: int) -> Op[List[str]]:
        links = yield from self.core.pages(target, most)
        return [link.rsplit("/", 1)[-1] for link in links]

    def _delete(self, target: str) -> Op[None]:
        yield from self.call("DELETE", target)

    def put_producer(self, /, producer: str, **fields: Any) -> Op[Dict[str, Any]]:
        """Create or change a producer: ``name``, ``token``, ``reply_url`` and others."""
        return self._object("PUT", path("producer", producer), fields)

    def put_channel(self, /, channel: str, **fields: Any) -> Op[Dict[str, Any]]:
        return self._object("PUT", path("channel", channel), fields)

    def put_consumer(self, /, channel: str, consumer: str, **fields: Any) -> Op[Dict[str, Any]]:
        """Create or change a consumer: ``type``, ``callback_url``, ``max_retries`` and others."""
        return self._object("PUT", _consumer(channel, consumer), fields)

    def producer(self, producer: str) -> Op[Dict[str, Any]]:
        return self._object("GET", path("producer", producer))

    def channel(self, channel: str) -> Op[Dict[str, Any]]:
        return self._object("GET", path("channel", channel))

    def consumer(self, channel: str, consumer: Optional[str] = None) -> Op[Dict[str, Any]]:
        return self._object("GET", _consumer(channel, consumer))

    def producers(self, most: int = 10_000) -> Op[List[str]]:
        return self._list("/producers", most)

    def channels(self, most: int = 10_000) -> Op[List[str]]:
        return self._list("/channels", most)

    def consumers(self, channel: str, most: int = 10_000) -> Op[List[str]]:
        return self._list(path("channel", channel, "consumers"), most)

    def delete_producer(self, producer: str) -> Op[None]:
        return self._delete(path("producer", producer))

    def delete_channel(self, channel: str) -> Op[None]:
        return self._delete(path("channel", channel))

    def delete_consumer(self, channel: str, consumer: str) -> Op[None]:
        return self._delete(_consumer(channel, consumer))

    def pause(self, channel: str, consumer: Optional[str] = None) -> Op[Dict[str, Any]]:
        """Pause a consumer, or a channel."""
        return self._state(channel, consumer, "pause")

    def resume(self, channel: str, consumer: Optional[str] = None) -> Op[Dict[str, Any]]:
        return self._state(channel, consumer, "resume")

    def _state(self, channel: str, consumer: Optional[str], verb: str) -> Op[Dict[str, Any]]:
        return self._object("POST", path("channel", channel, verb) if consumer is None else _consumer(channel, consumer, verb))

    def message(self, channel: str, message_id: str) -> Op[Dict[str, Any]]:
        """A message and its jobs."""
        return self._object("GET", path("channel", channel, "message", message_id))

    def workers(self, channel: str, consumer: Optional[str] = None) -> Op[List[Dict[str, Any]]]:
        """The living workers of a pull consumer."""
        got = yield from self._object("GET", _consumer(channel, consumer, "workers"))
        workers: List[Dict[str, Any]] = got["Result"]
        return workers

    def dead_letters(self, channel: str, consumer: Optional[str] = None) -> Op[List[Dict[str, Any]]]:
        """The first page of the dead letters of a consumer."""
        got = yield from self._object("GET", _consumer(channel, consumer, "dlq"))
        letters: List[Dict[str, Any]] = got["DeadJobs"]
        return letters

    def redrive(self, channel: str, consumer: Optional[str] = None) -> Op[Any]:
        """Redrive all dead letters of a consumer."""
        return self.call("POST", _consumer(channel, consumer, "dlq", "redrive"), {})

    def why(self, channel: str, consumer: Optional[str] = None) -> Op[Dict[str, Any]]:
        """Why the jobs of a consumer do not move."""
        return self._object("GET", _consumer(channel, consumer, "why"))

    def bulk(self, channel: str, bulk: str) -> Op[Dict[str, Any]]:
        """A bulk, and how far it is."""
        return self._object("GET", path("channel", channel, "bulk", bulk))


def _now(op: "Callable[Concatenate[_Ops, P], Op[T]]") -> "Callable[Concatenate[Manage, P], T]":
    """The method that runs an operation."""

    @functools.wraps(op)
    def method(self: "Manage", /, *args: "P.args", **named: "P.kwargs") -> T:
        got: T = self._run(op(self._ops, *args, **named))
        return got

    return method


def _soon(op: "Callable[Concatenate[_Ops, P], Op[T]]") -> "Callable[Concatenate[AsyncManage, P], Coroutine[Any, Any, T]]":
    """The coroutine that runs an operation."""

    @functools.wraps(op)
    async def method(self: "AsyncManage", /, *args: "P.args", **named: "P.kwargs") -> T:
        got: T = await self._run(op(self._ops, *args, **named))
        return got

    return method


class Manage:
    """The routes of management. ``client.manage("GET", "/channels")`` sends any request of them."""

    def __init__(self, core: Core, run: Callable[[Op[Any]], Any]) -> None:
        self._ops, self._run = _Ops(core), run

    __call__ = _now(_Ops.call)
    put_producer = _now(_Ops.put_producer)
    put_channel = _now(_Ops.put_channel)
    put_consumer = _now(_Ops.put_consumer)
    producer = _now(_Ops.producer)
    channel = _now(_Ops.channel)
    consumer = _now(_Ops.consumer)
    producers = _now(_Ops.producers)
    channels = _now(_Ops.channels)
    consumers = _now(_Ops.consumers)
    delete_producer = _now(_Ops.delete_producer)
    delete_channel = _now(_Ops.delete_channel)
    delete_consumer = _now(_Ops.delete_consumer)
    pause = _now(_Ops.pause)
    resume = _now(_Ops.resume)
    message = _now(_Ops.message)
    workers = _now(_Ops.workers)
    dead_letters = _now(_Ops.dead_letters)
    redrive = _now(_Ops.redrive)
    why = _now(_Ops.why)
    bulk = _now(_Ops.bulk)


class AsyncManage:
    """The methods of Manage as coroutines."""

    def __init__(self, core: Core, run: Callable[[Op[Any]], Awaitable[Any]]) -> None:
        self._ops, self._run = _Ops(core), run

    __call__ = _soon(_Ops.call)
    put_producer = _soon(_Ops.put_producer)
    put_channel = _soon(_Ops.put_channel)
    put_consumer = _soon(_Ops.put_consumer)
    producer = _soon(_Ops.producer)
    channel = _soon(_Ops.channel)
    consumer = _soon(_Ops.consumer)
    producers = _soon(_Ops.producers)
    channels = _soon(_Ops.channels)
    consumers = _soon(_Ops.consumers)
    delete_producer = _soon(_Ops.delete_producer)
    delete_channel = _soon(_Ops.delete_channel)
    delete_consumer = _soon(_Ops.delete_consumer)
    pause = _soon(_Ops.pause)
    resume = _soon(_Ops.resume)
    message = _soon(_Ops.message)
    workers = _soon(_Ops.workers)
    dead_letters = _soon(_Ops.dead_letters)
    redrive = _soon(_Ops.redrive)
    why = _soon(_Ops.why)
    bulk = _soon(_Ops.bulk)
