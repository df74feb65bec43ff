"""Verified push: what turns a function into an endpoint that a broker may call.

penstock.flask, penstock.fastapi and penstock.django build on this module.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar, Union

from .exceptions import ConfigurationError, Gone, TooManyRequests

log = logging.getLogger("penstock.push")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PATH = "/penstock"
WINDOW = 300.0
MOST_BODY = 64 << 20

__all__ = ["Answer", "MemoryStore", "Message", "Receiver", "Store", "sign"]


def _keys(secret: Union[str, Sequence[str]]) -> List[bytes]:
    texts = [secret] if isinstance(secret, str) else list(secret)
    keys = []
    for text in texts:
        try:
            key = base64.b64decode(text[len("whsec_") :], validate=True) if text.startswith("whsec_") else b""
        except (binascii.Error, ValueError):
            key = b""
        if len(key) < 16:
            raise ConfigurationError("the secret of a consumer is whsec_ and base64, as its signingSecret")
        keys.append(key)
    if not keys:
        raise ConfigurationError("a consumer needs its signingSecret")
    return keys


def sign(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of webhook-signature, as Standard Webhooks says."""
    (key,) = _keys(secret)
    mac = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


@dataclass(frozen=True)
class Message:
    """A message that the broker delivered."""

    channel: str
    message_id: str
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    attempt: int = 1
    consumer: str = ""
    priority: int = 0
    content_type: str = ""

    @property
    def text(self) -> str:
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.payload)


class Store(Protocol):
    """Remembers which messages are done, so that a repeat is answered 2xx and not done again."""

    def begin(self, key: str) -> str:
        """``new``: work on it; ``done``: it is done; ``busy``: another request works on it."""

    def done(self, key: str) -> None:
        """The function has returned."""

    def failed(self, key: str) -> None:
        """The function has raised: the next attempt works on it."""


class MemoryStore:
    """Remembers the newest messages in the memory of this process. Where several processes serve one
    endpoint, use a store that they share."""

    def __init__(self, most: int = 100_000, busy_for: float = 3600.0) -> None:
        self._most = most
        self._busy_for = busy_for
        self._mu = threading.Lock()
        self._known: "OrderedDict[str, Optional[float]]" = OrderedDict()  # None: done; else busy until

    def begin(self, key: str) -> str:
        now = time.monotonic()
        with self._mu:
            if key in self._known:
                until = self._known[key]
                if until is None:
                    return "done"
                if now < until:
                    return "busy"
            self._known[key] = now + self._busy_for
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return "new"

    def done(self, key: str) -> None:
        with self._mu:
            self._known[key] = None
            self._known.move_to_end(key)

    def failed(self, key: str) -> None:
        with self._mu:
            self._known.pop(key, None)


@dataclass(frozen=True)
class Answer:
    """What the endpoint answers."""

    status: int
    body: bytes = b""
    headers: Dict[str, str] = field(default_factory=dict)


Handler = Callable[[Message], Any]


class Receiver:
    """Verifies deliveries and calls the function of their channel.

    2xx is answered only after the function has returned. Another exception than Gone (410) and
    TooManyRequests (429) is a 500, and the broker tries again.
    """

    def __init__(
        self,
        secret: Union[str, Sequence[str]],
        *,
        window: float = WINDOW,
        store: Optional[Store] = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = _keys(secret)
        self._window = window
        self._store: Store = MemoryStore() if store is None else store
        self._clock = clock
        self.handlers: Dict[str, Handler] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.handlers)})"

    def on(self, channel: str) -> Callable[[F], F]:
        """The function for the messages of a channel; ``"*"``: of all others."""

        def register(function: F) -> F:
            self.handlers[channel] = function
            return function

        return register

    def verified(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the signature is of our secret, and fresh."""
        id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not id or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 15:
            return False
        if abs(self._clock() - int(stamp)) > self._window:
            return False
        signed = f"{id}.{stamp}.".encode("utf-8", "surrogateescape") + body
        wanted = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in self._keys]
        right = False
        for part in headers.get("webhook-signature", "").split()[:16]:
            version, _, text = part.partition(",")
            for one in wanted:
                right |= version == "v1" and hmac.compare_digest(text.encode("utf-8", "surrogateescape"), one)
        return right

    def admit(self, headers: Mapping[str, str], body: bytes) -> "Union[Answer, Tuple[Handler, Message, str]]":
        """The function, its message and the key of the message, or an answer at once."""
        named = {name.lower(): value for name, value in headers.items()}
        if not self.verified(named, body):
            return Answer(401, b"the signature is missing, wrong or too old\n")
        channel = named.get("x-broker-channel-id", "")
        handler = self.handlers.get(channel) or self.handlers.get("*")
        if handler is None:
            return Answer(404, b"no function is for this channel\n")
        id = named.get("x-broker-message-id") or named["webhook-id"]
        message = Message(
            channel=channel,
            message_id=id,
            payload=body,
            headers=named,
            attempt=_number(named.get("x-broker-attempt"), 1),
            consumer=named.get("x-broker-consumer-id", ""),
            priority=_number(named.get("x-broker-message-priority"), 0),
            content_type=named.get("content-type", ""),
        )
        key = f"{channel}/{message.consumer}/{named['webhook-id']}"
        state = self._store.begin(key)
        if state == "done":
            return Answer(200)
        if state == "busy":
            return Answer(409, b"another request works on this message\n")
        return handler, message, key

    def ended(self, key: str, result: Any, error: Optional[BaseException]) -> Answer:
        """The answer after the function has returned or raised."""
        if error is None:
            self._store.done(key)
            return _answer_of(result)
        self._store.failed(key)
        if isinstance(error, Gone):
            return Answer(410, b"gone\n")
        if isinstance(error, TooManyRequests):
            after = {} if error.retry_after is None else {"Retry-After": str(max(0, -int(-error.retry_after // 1)))}
            return Answer(429, b"too many requests\n", after)
        log.error("a handler of push messages failed", exc_info=error)
        return Answer(500, b"the handler failed\n")

    def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a delivery; the function runs in this thread."""
        import inspect

        admitted = self.admit(headers, body)
        if isinstance(admitted, Answer):
            return admitted
        handler, message, key = admitted
        try:
            result = handler(message)
            if inspect.isawaitable(result):
                import asyncio

                result = asyncio.run(_awaited(result))
            return self.ended(key, result, None)
        except Exception as error:
            return self.ended(key, None, error)
        except BaseException:
            self._store.failed(key)
            raise

    async def areceive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """The same on an event loop; a function that is no coroutine runs in a thread."""
        import asyncio
        import inspect

        admitted = self.admit(headers, body)
        if isinstance(admitted, Answer):
            return admitted
        handler, message, key = admitted
        try:
            if inspect.iscoroutinefunction(handler):
                result = await handler(message)
            else:
                result = await asyncio.get_running_loop().run_in_executor(None, handler, message)
            return self.ended(key, result, None)
        except Exception as error:
            return self.ended(key, None, error)
        except BaseException:
            self._store.failed(key)
            raise


class Endpoint(Receiver):
    """A Receiver at a path of an app."""

    def __init__(
        self,
        app: Any = None,
        *,
        secret: Union[str, Sequence[str]],
        path: str = DEFAULT_PATH,
        window: float = WINDOW,
        store: Optional[Store] = None,
    ) -> None:
        super().__init__(secret, window=window, store=store)
        self.path = path
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Any) -> None:
        """Add the route to the app."""
        raise NotImplementedError


async def _awaited(value: Any) -> Any:
    return await value


def _number(text: Optional[str], otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else otherwise


def _answer_of(result: Any) -> Answer:
    """None is 204; what a function returns is its response, for consumers with responses on."""
    if result is None:
        return Answer(204)
    if isinstance(result, (bytes, bytearray)):
        return Answer(200, bytes(result), {"Content-Type": "application/octet-stream"})
    if isinstance(result, str):
        return Answer(200, result.encode(), {"Content-Type": "text/plain; charset=utf-8"})
    from ._types import to_json

    return Answer(200, to_json(result).encode(), {"Content-Type": "application/json"})
