"""The requests of a client, without sockets and clocks of its own.

Each operation is a generator: it yields a Call, whose answer is sent back in, or a Pause. Client and
AsyncClient run the same operations, one with threads, the other on an event loop.
"""

from __future__ import annotations

import base64
import json
import random
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from . import _settings
from ._types import Job, Message, Move, Moved, Published, Response, encode_payload, job_of, moves_body, to_json
from ._version import __version__
from ._wire import Answer
from .exceptions import (
    BrokerError,
    ConfigurationError,
    ManagementClosed,
    RefusedError,
    ResponseFailed,
    UnavailableError,
)

T = TypeVar("T")

PUBLISH_WITHIN = 30.0
MOST_PAUSE = 30.0
MOST_RETRY_AFTER = 3600.0
BATCH_LINES = 1000
BATCH_BYTES = 2 << 20


@dataclass
class Call:
    """One request. ``poll`` marks a claim that waits: its connection ends when the client stops."""

    method: str
    target: str
    headers: Dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 10.0
    poll: Optional[Any] = None


@dataclass
class Pause:
    seconds: float


class Lost(Exception):
    """No usable answer came."""


Step = Union[Call, Pause]
Op = Generator[Step, Any, T]


def backoff(n: int) -> float:
    """Full jitter: the wait before try n + 1, n from 0."""
    return random.uniform(0, min(MOST_PAUSE, 0.2 * 2 ** min(n, 20)))


def retry_after(answer: Answer) -> Optional[float]:
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        if at.tzinfo is None:
            at = at.replace(tzinfo=timezone.utc)
        seconds = (at - datetime.now(timezone.utc)).total_seconds()
    if seconds != seconds:
        return None
    return min(max(seconds, 0.0), MOST_RETRY_AFTER)


def object_of(answer: Answer) -> Dict[str, Any]:
    """The JSON object of an answer; Lost: it has none."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise Lost(f"the answer {answer.status} cannot be read") from None
    if not isinstance(value, dict):
        raise Lost(f"the answer {answer.status} cannot be read")
    return value


def problem(answer: Answer) -> Tuple[str, str]:
    """Code and detail of a refusal."""
    try:
        value = json.loads(answer.body)
        code, detail = value.get("code"), value.get("detail")
    except (ValueError, AttributeError, RecursionError):
        return "", ""
    return code if isinstance(code, str) else "", detail if isinstance(detail, str) else ""


def is_later(answer: Answer) -> bool:
    """The answer says: not now."""
    return answer.status in (408, 425, 429, 500, 502, 503, 504) and problem(answer)[0] not in (
        "response_failed",
        "response_late",
    )


def refusal(answer: Answer, what: str) -> BrokerError:
    code, detail = problem(answer)
    shown = f"{answer.status} {code}".strip()
    return RefusedError(
        f"{what}: {shown}" + (f": {detail}" if detail else ""),
        status=answer.status,
        code=code,
        retry_after=retry_after(answer),
    )


def path(*parts: str) -> str:
    return "".join("/" + quote(part, safe="~:@-._") for part in parts)


_TOKEN_CODES = {
    "producer_not_found",
    "consumer_not_found",
    "channel_not_found",
    "channel_token_mismatch",
    "producer_token_mismatch",
    "consumer_token_mismatch",
}
_CLOSED_CODES = {"token_missing", "admin_disabled", "admin_token_mismatch", "host_not_allowed", "origin_not_allowed"}


@dataclass
class Options:
    """What a client is made with; the environment has what is None."""

    url: Optional[str] = None
    producer_id: Optional[str] = None
    producer_token: Optional[str] = None
    channel_token: Optional[str] = None
    consumer_token: Optional[str] = None
    token: Optional[str] = None
    admin_token: Optional[str] = None
    timeout: float = 10.0
    tries: int = 5
    worker: Optional[str] = None

    def resolved(self) -> "Options":
        setting = _settings.setting
        token = self.token or setting("PENSTOCK_TOKEN")
        if not self.timeout > 0:
            raise ConfigurationError("timeout must be above 0")
        return replace(
            self,
            url=self.url or setting("PENSTOCK_URL") or _settings.DEFAULT_URL,
            producer_id=self.producer_id or setting("PENSTOCK_PRODUCER_ID") or _settings.DEFAULT_PRODUCER,
            producer_token=self.producer_token or setting("PENSTOCK_PRODUCER_TOKEN") or token,
            channel_token=self.channel_token or setting("PENSTOCK_CHANNEL_TOKEN") or token,
            consumer_token=self.consumer_token or setting("PENSTOCK_CONSUMER_TOKEN") or token,
            token=token,
            admin_token=self.admin_token or setting("PENSTOCK_ADMIN_TOKEN"),
            worker=_settings.clean_worker_name(self.worker) if self.worker else None,
        )


class Core:
    """The operations of a client of one broker."""

    def __init__(self, options: Options) -> None:
        self.o = options.resolved()
        self.address = _settings.Address(self.o.url or "")
        self.producer_id = self.o.producer_id or ""
        self.tokens: Dict[Tuple[str, ...], str] = {}
        self.agent = f"penstock-python/{__version__}"
        self._worker = self.o.worker

    @property
    def worker(self) -> str:
        if self._worker is None:
            self._worker = _settings.worker_name()
        return self._worker

    def call(
        self,
        method: str,
        target: str,
        headers: Optional[Mapping[str, str]] = None,
        body: bytes = b"",
        timeout: Optional[float] = None,
        poll: Any = None,
    ) -> Call:
        all = {"User-Agent": self.agent, **(headers or {})}
        return Call(method, self.address.prefix + target, all, body, timeout or self.o.timeout, poll)

    # Tries

    def ask(self, call: Call, what: str, read: Callable[[Answer], T], tries: int = 0, within: float = PUBLISH_WITHIN) -> Op[T]:
        """Send until there is an answer that ``read`` takes. It raises Lost for one that cannot be read,
        and BrokerError for a refusal."""
        begun, n, most = time.monotonic(), 0, tries or self.o.tries
        while True:
            wait: Optional[float] = None
            status, code = 0, ""
            try:
                answer: Answer = yield call
                if not is_later(answer):
                    return read(answer)
                status, code = answer.status, problem(answer)[0]
                wait, reason = retry_after(answer), f"{status} {code}".strip()
            except Lost as lost:
                reason = str(lost)
            n += 1
            pause = backoff(n - 1) if wait is None else wait + backoff(0) / 4
            if n >= most or time.monotonic() + pause - begun > within:
                raise UnavailableError(
                    f"{what}: {reason}, after {n} {'try' if n == 1 else 'tries'}",
                    status=status,
                    code=code,
                    retry_after=wait,
                ) from None
            yield Pause(pause)

    # Tokens

    def managed(self, call: Call, subject: str) -> Op[Answer]:
        """A management request."""
        if self.o.admin_token:
            call.headers["X-Broker-Admin-Token"] = self.o.admin_token

        def read(answer: Answer) -> Answer:
            code, _ = problem(answer) if answer.status >= 400 else ("", "")
            if answer.status in (401, 403) and code in _CLOSED_CODES:
                raise ManagementClosed(
                    f"the broker at {self.address.url} does not let this client make or read {subject} "
                    f"({answer.status} {code}): set PENSTOCK_ADMIN_TOKEN, or the tokens PENSTOCK_CHANNEL_TOKEN and "
                    "PENSTOCK_CONSUMER_TOKEN (a producer: PENSTOCK_PRODUCER_ID, PENSTOCK_PRODUCER_TOKEN)",
                    status=answer.status,
                    code=code,
                )
            return answer

        return (yield from self.ask(call, subject, read))

    def _token_of(self, call: Call, subject: str) -> Op[str]:
        answer = yield from self.managed(call, subject)
        return self._read_token(answer, subject)

    def _read_token(self, answer: Answer, subject: str) -> str:
        if answer.status >= 300:
            raise refusal(answer, subject)
        token = _object_or_refuse(answer, subject).get("Token")
        if not isinstance(token, str):
            raise UnavailableError(f"{subject}: the answer has no token", status=answer.status)
        if not token:
            raise ManagementClosed(
                f"the broker at {self.address.url} does not show the token of {subject}, which was there before "
                "(BROKER_SHOW_TOKENS): set the tokens PENSTOCK_CHANNEL_TOKEN and PENSTOCK_CONSUMER_TOKEN (a producer: "
                "PENSTOCK_PRODUCER_ID, PENSTOCK_PRODUCER_TOKEN)",
                status=answer.status,
                code="token_not_shown",
            )
        return token

    def producer(self) -> Op[str]:
        """The token of the producer, which is made if needed."""
        if self.o.producer_token:
            return self.o.producer_token
        key = ("producer", self.producer_id)
        if key not in self.tokens:
            call = self.call("PUT", path("producer", self.producer_id))
            self.tokens[key] = yield from self._token_of(call, f'producer "{self.producer_id}"')
        return self.tokens[key]

    def channel(self, channel: str) -> Op[str]:
        if self.o.channel_token:
            return self.o.channel_token
        key = ("channel", channel)
        if key not in self.tokens:
            self.tokens[key] = yield from self._token_of(self.call("PUT", path("channel", channel)), f'channel "{channel}"')
        return self.tokens[key]

    def consumer(self, channel: str, consumer: str) -> Op[str]:
        """The token of a pull consumer, which is made if needed."""
        if self.o.consumer_token:
            return self.o.consumer_token
        key = ("consumer", channel, consumer)
        if key not in self.tokens:
            self.tokens[key] = yield from self._make_consumer(channel, consumer)
        return self.tokens[key]

    def _make_consumer(self, channel: str, consumer: str) -> Op[str]:
        at, subject = path("channel", channel, "consumer", consumer), f'queue "{channel}"'
        for _ in range(3):
            headers = {"If-None-Match": "*", "Content-Type": "application/x-www-form-urlencoded"}
            answer = yield from self.managed(self.call("PUT", at, headers, b"type=pull"), subject)
            if answer.status == 412:
                answer = yield from self.managed(self.call("GET", at), subject)
                if answer.status == 404:
                    continue
            token = self._read_token(answer, subject)
            shown = _object_or_refuse(answer, subject)
            if shown.get("Type") != "pull":
                raise RefusedError(
                    f'{subject}: consumer {consumer} of channel {channel} is a push consumer; a worker needs a pull consumer',
                    status=412,
                    code="consumer_not_pull",
                )
            return token
        raise RefusedError(f"{subject}: its consumer is deleted again and again", status=404, code="consumer_not_found")

    def forget(self, code: str, channel: str, consumer: str = "") -> bool:
        """After a refusal of tokens: drop those that were not given. False: all were."""
        given = {
            "producer": bool(self.o.producer_token),
            "channel": bool(self.o.channel_token),
            "consumer": bool(self.o.consumer_token),
        }
        if all(given.values()):
            return False
        kind = code.split("_")[0]
        if given.get(kind, False):
            return False
        for key in list(self.tokens):
            if key in (("producer", self.producer_id), ("channel", channel)) or key[:2] == ("consumer", channel):
                del self.tokens[key]
        return True

    def as_producer(self, channel: str) -> Op[Dict[str, str]]:
        producer = yield from self.producer()
        token = yield from self.channel(channel)
        return {
            "X-Broker-Channel-Token": token,
            "X-Broker-Producer-ID": self.producer_id,
            "X-Broker-Producer-Token": producer,
        }

    def as_consumer(self, channel: str, consumer: str) -> Op[Dict[str, str]]:
        token = yield from self.channel(channel)
        own = yield from self.consumer(channel, consumer)
        return {"X-Broker-Channel-Token": token, "X-Broker-Consumer-Token": own}

    def admitted(
        self,
        who: Callable[[], Op[Dict[str, str]]],
        send: Callable[[Dict[str, str]], Op[T]],
        channel: str,
        consumer: str = "",
    ) -> Op[T]:
        """Send with tokens, and once more with new ones if the broker does not know them."""
        for again in (True, False):
            headers = yield from who()
            try:
                return (yield from send(headers))
            except RefusedError as error:
                if not again or error.code not in _TOKEN_CODES or not self.forget(error.code, channel, consumer):
                    raise
        raise AssertionError("not reached")

    # Publishing

    def publish(self, channel: str, message: Message, queue: bool = False) -> Op[Published]:
        """Publish a message; with ``queue`` its consumer is made, too."""
        message = _identified(message)
        body, content_type = encode_payload(message.payload, message.content_type)
        own = {"Content-Type": content_type, **message.request_headers()}
        what = f'publish to "{channel}"'
        target = path("channel", channel) + "/broadcast"

        def send(tokens: Dict[str, str]) -> Op[Published]:
            call = self.call("POST", target, {**own, **tokens}, body)
            return (yield from self.ask(call, what, lambda answer: _published(answer, message, what)))

        if queue:
            yield from self.channel(channel)
            yield from self.consumer(channel, channel)
        return (yield from self.admitted(lambda: self.as_producer(channel), send, channel))

    def publish_many(self, channel: str, messages: Sequence[Message], queue: bool = False) -> Op[List[Published]]:
        messages = [_identified(message) for message in messages]
        if queue:
            yield from self.channel(channel)
            yield from self.consumer(channel, channel)
        out: List[Published] = []
        for lines in _batches(messages):
            out += yield from self._batch(channel, lines)
        return out

    def _batch(self, channel: str, lines: Sequence[Tuple[Message, str]]) -> Op[List[Published]]:
        """Publish lines, and those without an answer once more, until the tries are over."""
        results: List[Optional[Published]] = [None] * len(lines)
        begun, n, last = time.monotonic(), 0, UnavailableError("the broker gave no answer")
        while True:
            open_lines = [i for i, r in enumerate(results) if r is None]
            wait: Optional[float] = None
            try:
                wait = yield from self._send_lines(channel, lines, open_lines, results)
            except UnavailableError as error:
                last, wait = error, error.retry_after
            except RefusedError as error:
                for i in open_lines:
                    results[i] = Published(lines[i][0].message_id or "", error.status, error=error)
            n += 1
            rest = [i for i, r in enumerate(results) if r is None]
            pause = backoff(n - 1) if wait is None else wait
            if rest and (n >= self.o.tries or time.monotonic() + pause - begun > PUBLISH_WITHIN):
                for i in rest:
                    results[i] = Published(lines[i][0].message_id or "", last.status, error=last)
            if not rest or results[rest[0]] is not None:
                return [r for r in results if r is not None]
            yield Pause(pause)

    def _send_lines(
        self,
        channel: str,
        lines: Sequence[Tuple[Message, str]],
        which: Sequence[int],
        results: List[Optional[Published]],
    ) -> Op[Optional[float]]:
        body = ("\n".join(lines[i][1] for i in which) + "\n").encode("utf-8", "surrogatepass")
        what = f'publish to "{channel}"'

        def send(tokens: Dict[str, str]) -> Op[Answer]:
            headers = {"Content-Type": "application/x-ndjson", **tokens}
            call = self.call("POST", path("channel", channel) + "/batch", headers, body)
            return (yield from self.ask(call, what, lambda answer: _batch_answer(answer, what), tries=1))

        answer = yield from self.admitted(lambda: self.as_producer(channel), send, channel)
        return _read_lines(answer, lines, which, results, what)

    def request(self, channel: str, message: Message, wait: float) -> Op[Response]:
        message = _identified(message)
        body, content_type = encode_payload(message.payload, message.content_type)
        seconds = max(1, min(60, -int(-wait // 1)))
        own = {"Content-Type": content_type, "Prefer": f"wait={seconds}", **message.request_headers()}
        what = f'request to "{channel}"'
        begun = time.monotonic()

        def send(tokens: Dict[str, str]) -> Op[Union[Response, Published]]:
            call = self.call("POST", path("channel", channel) + "/request", {**own, **tokens}, body, self.o.timeout + seconds)
            return (
                yield from self.ask(
                    call, what, lambda answer: _requested(answer, message, what), within=PUBLISH_WITHIN + seconds
                )
            )

        got = yield from self.admitted(lambda: self.as_producer(channel), send, channel)
        if isinstance(got, Response):
            return got
        if got.status != 202:  # stored by an earlier try whose answer was lost: its response may be there
            left = max(1.0, wait - (time.monotonic() - begun))
            for one in (yield from self.responses(channel, got.message_id, left, "first")):
                if one.received:
                    return one
        return Response("", 202, b"", message_id=got.message_id, state="ARRIVED")

    # Pull consumers

    def claim(
        self,
        channel: str,
        consumer: str,
        limit: int,
        wait: float,
        lease: Optional[int],
        about: str = "",
        poll: Any = None,
        tries: int = 0,
    ) -> Op[Tuple[List[Job], Optional[float], str]]:
        """Jobs, the seconds after which to ask again, and why there are none."""
        query: Dict[str, Any] = {"limit": limit, "wait": duration_text_ms(wait)}
        if lease is not None:
            query["timeout"] = lease
        what = f'claim from "{channel}"'

        def read(answer: Answer) -> Tuple[List[Job], Optional[float], str]:
            if answer.status != 200:
                raise refusal(answer, what)
            value = object_of(answer)
            try:
                jobs = [job_of(channel, consumer, entry) for entry in value["Result"]]
            except (KeyError, TypeError, ValueError, AttributeError):
                raise Lost("the answer 200 cannot be read") from None
            return jobs, retry_after(answer), str(value.get("Why") or "")

        def send(tokens: Dict[str, str]) -> Op[Tuple[List[Job], Optional[float], str]]:
            headers = {"X-Broker-Worker": self.worker + about, **tokens}
            target = path("channel", channel, "consumer", consumer) + "/claim?" + urlencode(query)
            call = self.call("POST", target, headers, b"", self.o.timeout + wait, poll)
            return (yield from self.ask(call, what, read, tries=tries))

        return (yield from self.admitted(lambda: self.as_consumer(channel, consumer), send, channel, consumer))

    def move(self, channel: str, consumer: str, moves: Sequence[Move], about: str = "", tries: int = 0) -> Op[List[Moved]]:
        """Move up to 500 jobs. The answers are in the order of the moves."""
        body, what = moves_body(moves), f'report to "{channel}"'

        def read(answer: Answer) -> List[Moved]:
            if answer.status != 200:
                raise refusal(answer, what)
            try:
                out = [Moved(str(r["ID"]), int(r["Status"]), str(r.get("code") or "")) for r in object_of(answer)["Result"]]
            except (KeyError, TypeError, ValueError, AttributeError):
                raise Lost("the answer 200 cannot be read") from None
            if [moved.id for moved in out] != [move.id for move in moves]:
                raise Lost("the answer 200 is about other jobs")
            return out

        def send(tokens: Dict[str, str]) -> Op[List[Moved]]:
            headers = {"Content-Type": "application/json", "X-Broker-Worker": self.worker + about, **tokens}
            call = self.call("POST", path("channel", channel, "consumer", consumer) + "/jobs", headers, body)
            return (yield from self.ask(call, what, read, tries=tries))

        return (yield from self.admitted(lambda: self.as_consumer(channel, consumer), send, channel, consumer))

    def respond(self, channel: str, consumer: str, message_id: str, payload: Any, content_type: Optional[str]) -> Op[bool]:
        """Post the response to a message; False: there is one already."""
        body, kind = encode_payload(payload, content_type)
        what = f'response to message "{message_id}"'

        def read(answer: Answer) -> bool:
            if answer.status == 409 and problem(answer)[0] == "response_exists":
                return False
            if answer.status >= 300:
                raise refusal(answer, what)
            return True

        def send(tokens: Dict[str, str]) -> Op[bool]:
            headers = {"Content-Type": kind, "X-Broker-Consumer-ID": consumer, **tokens}
            call = self.call("POST", path("channel", channel, "message", message_id) + "/response", headers, body)
            return (yield from self.ask(call, what, read))

        return (yield from self.admitted(lambda: self.as_consumer(channel, consumer), send, channel, consumer))

    # Reading

    def as_reader(self, channel: str) -> Op[Dict[str, str]]:
        """Tokens of the producer where they are given, else those of management."""
        if self.o.producer_token and self.o.channel_token and not self.o.admin_token:
            return (yield from self.as_producer(channel))
        return {"X-Broker-Admin-Token": self.o.admin_token} if self.o.admin_token else {}

    def read(self, method: str, target: str, channel: str, what: str, **more: Any) -> Op[Answer]:
        """A request with the access of the producer, or of management."""
        headers: Dict[str, str] = yield from self.as_reader(channel)
        own, body, timeout = more.pop("headers", {}), more.pop("body", b""), more.pop("timeout", None)

        def take(answer: Answer) -> Answer:
            if answer.status >= 400:
                raise refusal(answer, what)
            return answer

        def send(tokens: Dict[str, str]) -> Op[Answer]:
            return (yield from self.ask(self.call(method, target, {**own, **tokens}, body, timeout), what, take))

        try:
            return (yield from send(headers))
        except RefusedError as error:
            # Where management is closed, a producer sees what is its own.
            if error.status not in (401, 403) or "X-Broker-Producer-Token" in headers:
                raise
        return (yield from self.admitted(lambda: self.as_producer(channel), send, channel))

    def responses(self, channel: str, message_id: str, wait: float = 0, until: str = "all") -> Op[List[Response]]:
        """The responses to a message, after a wait of any length."""
        end = time.monotonic() + wait
        target = path("channel", channel, "message", message_id) + "/responses"
        what = f'responses to message "{message_id}"'
        while True:
            part = max(0.0, min(20.0, end - time.monotonic()))
            query = "?" + urlencode({"wait": duration_text_ms(part), "until": until}) if wait > 0 else ""
            answer = yield from self.read("GET", target + query, channel, what, timeout=self.o.timeout + part)
            try:
                value = object_of(answer)
                found = [_response(entry, message_id) for entry in value["Result"]]
            except (Lost, KeyError, TypeError, ValueError, AttributeError):
                raise UnavailableError(f"{what}: the answer cannot be read", status=answer.status) from None
            enough = value.get("Complete") or until == "first" and any(r.received for r in found)
            if enough or time.monotonic() >= end:
                return found
            yield Pause(retry_after(answer) or 0.05)

    # Schedules

    def scheduled(self, method: str, channel: str, message_id: str, **more: Any) -> Op[Optional[Dict[str, Any]]]:
        """GET, PUT or DELETE of a scheduled message. None: there is none, or its time has come."""
        what = f'scheduled message "{message_id}"'
        try:
            target = path("channel", channel, "scheduled-message", message_id)
            answer = yield from self.read(method, target, channel, what, **more)
        except RefusedError as error:
            if error.code in ("scheduled_message_not_found", "already_dispatched", "channel_not_found"):
                return None
            raise
        return {} if answer.status == 204 else _object_or_refuse(answer, what)

    def reschedule(self, channel: str, message_id: str, message: Message, replace_payload: bool) -> Op[Optional[Dict[str, Any]]]:
        headers = message.request_headers()
        headers.pop("X-Broker-Message-ID", None)
        body = b""
        if replace_payload:
            body, headers["Content-Type"] = encode_payload(message.payload, message.content_type)
        return (yield from self.scheduled("PUT", channel, message_id, headers=headers, body=body))

    # Bulks

    def bulk(self, channel: str, body: bytes, content_type: str, headers: Mapping[str, str]) -> Op[str]:
        """Publish a body of many messages; returns the ID of the bulk. A lost answer is not asked again:
        the bulk may be there."""
        what = f'bulk to "{channel}"'

        def read(answer: Answer) -> str:
            if answer.status >= 300:
                raise refusal(answer, what)
            return answer.headers.get("location", "").rsplit("/", 1)[-1]

        def send(tokens: Dict[str, str]) -> Op[str]:
            call = self.call(
                "POST", path("channel", channel) + "/bulk", {"Content-Type": content_type, **headers, **tokens}, body,
                self.o.timeout + len(body) / (1 << 20),
            )
            return (yield from self.ask(call, what, read, tries=1))

        return (yield from self.admitted(lambda: self.as_producer(channel), send, channel))

    # Management

    def manage(
        self, method: str, target: str, fields: Optional[Mapping[str, Any]] = None, headers: Optional[Mapping[str, str]] = None
    ) -> Op[Any]:
        """Any management route: the JSON of its answer, None where it has none."""
        own, body = dict(headers or {}), b""
        if fields is not None:
            own["Content-Type"], body = "application/json", to_json(dict(fields)).encode()
        answer = yield from self.managed(self.call(method, target, own, body), f"{method} {target}")
        if answer.status >= 400:
            raise refusal(answer, f"{method} {target}")
        if not answer.body.strip():
            return None
        try:
            return json.loads(answer.body)
        except ValueError:
            raise UnavailableError(f"{method} {target}: the answer cannot be read", status=answer.status) from None

    def pages(self, target: str, most: int) -> Op[List[str]]:
        """A whole list of links, up to ``most``."""
        out: List[str] = []
        while True:
            page = yield from self.manage("GET", target)
            out += page.get("Result") or []
            target = (page.get("Pages") or {}).get("next") or ""
            if not target or len(out) >= most:
                return out[:most]


def _object_or_refuse(answer: Answer, what: str) -> Dict[str, Any]:
    try:
        return object_of(answer)
    except Lost as lost:
        raise UnavailableError(f"{what}: {lost}", status=answer.status) from None


def _identified(message: Message) -> Message:
    return message if message.message_id else replace(message, message_id=str(uuid.uuid4()))


def _published(answer: Answer, message: Message, what: str) -> Published:
    h, id = answer.headers, message.message_id or ""
    if answer.status in (200, 201, 202):
        to = h.get("x-broker-recipients")
        return Published(
            id,
            answer.status,
            h.get("location", ""),
            h.get("idempotent-replayed") == "true",
            int(to) if to and to.isdigit() else None,
            h.get("x-broker-ack", ""),
        )
    code, _ = problem(answer)
    if answer.status == 409 and code == "duplicate_message_id":
        return Published(id, 409, h.get("location", ""), True, None, h.get("x-broker-ack", ""))
    if answer.status < 300 or answer.status == 409 and not code:
        raise Lost(f"the answer {answer.status} cannot be read")
    raise refusal(answer, what)


def _requested(answer: Answer, message: Message, what: str) -> Union[Response, Published]:
    h, id = answer.headers, message.message_id or ""
    if answer.status == 200 and "x-broker-consumer-id" in h:
        status = h.get("x-broker-response-status", "200")
        return Response(
            h["x-broker-consumer-id"],
            int(status) if status.isdigit() else 200,
            answer.body,
            h.get("content-type", ""),
            h,
            "RESPONSE_RECEIVED_FROM_RECEIVER",
            message_id=id,
        )
    code, detail = problem(answer) if answer.status >= 400 else ("", "")
    if code in ("response_failed", "response_late"):
        raise ResponseFailed(f"{what}: {answer.status} {code}: {detail}", status=answer.status, code=code)
    return _published(answer, message, what)


def _batches(messages: Sequence[Message]) -> "List[List[Tuple[Message, str]]]":
    out: List[List[Tuple[Message, str]]] = []
    size = 0
    for message in messages:
        line = message.line()
        if not out or len(out[-1]) >= BATCH_LINES or size + len(line) > BATCH_BYTES:
            out.append([])
            size = 0
        out[-1].append((message, line))
        size += len(line) + 1
    return out


def _batch_answer(answer: Answer, what: str) -> Answer:
    if answer.status != 200:
        raise refusal(answer, what)
    return answer


def _read_lines(
    answer: Answer,
    lines: Sequence[Tuple[Message, str]],
    which: Sequence[int],
    results: List[Optional[Published]],
    what: str,
) -> Optional[float]:
    """Notes the results of lines in their order, as far as they can be read."""
    for i, text in zip(which, answer.body.splitlines()):
        id = lines[i][0].message_id or ""
        try:
            value = json.loads(text)
            status, code = int(value["Status"]), str(value.get("code") or "")
            named = value.get("MessageID")
        except (ValueError, KeyError, TypeError, AttributeError):
            break
        if code == "answers_unread" or named not in (None, id):
            break
        if status in (200, 201, 202) or code == "duplicate_message_id":
            results[i] = Published(
                id, status, str(value.get("Location") or ""), status in (200, 409), None, str(value.get("Ack") or "")
            )
        elif status not in (408, 425, 429) and status < 500:
            text_of = f"{what}: {status} {code}: {value.get('detail') or ''}"
            results[i] = Published(id, status, error=RefusedError(text_of, status=status, code=code))
    return retry_after(answer)


def _response(entry: Mapping[str, Any], message_id: str) -> Response:
    body = entry.get("Body") or ""
    headers = entry.get("Headers") or {}
    return Response(
        str(entry["ConsumerID"]),
        int(entry.get("Status") or 0),
        base64.b64decode(body) if entry.get("BodyEncoding") == "base64" else str(body).encode("utf-8", "surrogatepass"),
        str(headers.get("Content-Type") or ""),
        headers,
        str(entry.get("State") or ""),
        str(entry.get("Reason") or ""),
        bool(entry.get("Truncated")),
        int(entry.get("Attempt") or 0),
        message_id,
    )


def duration_text_ms(seconds: float) -> str:
    return f"{max(0, int(seconds * 1000))}ms"
