"""HTTP/1.1 without sockets: requests to bytes, bytes to answers."""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional

MOST_ANSWER = 16 << 20
MOST_HEAD = 64 << 10


class WireError(Exception):
    """What came is no answer."""


class Answer:
    """A whole answer. The names in ``headers`` are in lower case."""

    __slots__ = ("status", "headers", "body", "keep")

    def __init__(self, status: int, headers: Dict[str, str], body: bytes, keep: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keep = keep


def request_bytes(method: str, target: str, authority: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {authority}"]
    for name, value in headers.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name} must not have a line break")
        lines.append(f"{name}: {value}")
    if body or method not in ("GET", "HEAD", "DELETE"):
        lines.append(f"Content-Length: {len(body)}")
    lines.append("\r\n")
    try:
        head = "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        head = "\r\n".join(lines).encode("utf-8")
    return head + body


class Reader:
    """Reads one answer from the bytes that are fed to it."""

    def __init__(self, most: int = MOST_ANSWER, bodyless: bool = False) -> None:
        self._most = most
        self._bodyless = bodyless
        self._text = bytearray()
        self._status = 0
        self._headers: Dict[str, str] = {}
        self._length: Optional[int] = None
        self._chunked = False
        self._parts: List[bytes] = []
        self._size = 0
        self._keep = True
        self._headed = False
        self._ended = False

    @property
    def begun(self) -> bool:
        return self._headed or bool(self._text)

    def feed(self, data: bytes) -> Optional[Answer]:
        """Take what came; empty: the other side has closed. Returns the answer once it is whole."""
        if data:
            self._text += data
        if not self._headed and not self._head(bool(data)):
            return None
        if not self._ended:
            self._body(closed=not data)
        if not self._ended:
            return None
        if self._text:
            self._keep = False  # more than an answer: nothing that follows can be trusted
        return Answer(self._status, self._headers, b"".join(self._parts), self._keep)

    def _head(self, more: bool) -> bool:
        while True:
            end = self._text.find(b"\r\n\r\n")
            if end < 0:
                if len(self._text) > MOST_HEAD:
                    raise WireError("the head of the answer is too long")
                if not more:
                    raise WireError("the connection was closed before the answer")
                return False
            lines = bytes(self._text[:end]).split(b"\r\n")
            del self._text[: end + 4]
            self._read_head(lines)
            if self._status >= 200:
                self._headed = True
                return True

    def _read_head(self, lines: List[bytes]) -> None:
        first = lines[0].split(b" ", 2)
        if len(first) < 2 or not first[0].startswith(b"HTTP/1.") or not first[1].isdigit() or len(first[1]) != 3:
            raise WireError("what came is no HTTP answer")
        self._status = int(first[1])
        headers: Dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise WireError("a header of the answer is malformed")
            key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
            if key == "content-length" and headers.get(key, text) != text:
                raise WireError("the answer has two lengths")
            headers[key] = text
        self._headers = headers
        connection = headers.get("connection", "").lower()
        self._keep = first[0] != b"HTTP/1.0" and "close" not in connection
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._length = None
        if self._bodyless or self._status in (204, 304):
            self._chunked, self._length = False, 0
        elif not self._chunked and "content-length" in headers:
            if not headers["content-length"].isdigit():
                raise WireError("the length of the answer is malformed")
            self._length = int(headers["content-length"])
            if self._length > self._most:
                raise WireError("the answer is too large")

    def _take(self, n: int) -> None:
        self._parts.append(bytes(self._text[:n]))
        self._size += n
        del self._text[:n]
        if self._size > self._most:
            raise WireError("the answer is too large")

    def _body(self, closed: bool) -> None:
        if self._chunked:
            self._chunks()
        elif self._length is None:
            self._take(len(self._text))
            self._keep, self._ended = False, closed
            return
        elif len(self._text) >= self._length:
            self._take(self._length)
            self._ended = True
        if closed and not self._ended:
            raise WireError("the answer broke off")

    def _chunks(self) -> None:
        while True:
            end = self._text.find(b"\r\n")
            if end < 0:
                if len(self._text) > 1024:
                    raise WireError("a chunk of the answer is malformed")
                return
            try:
                size = int(bytes(self._text[:end]).split(b";")[0].strip(), 16)
            except ValueError:
                raise WireError("a chunk of the answer is malformed") from None
            if size < 0 or self._size + size > self._most:
                raise WireError("the answer is too large")
            if size == 0:
                if len(self._text) < end + 4:
                    return
                del self._text[: end + 4]  # the broker sends no trailers
                self._ended = True
                return
            if len(self._text) < end + 2 + size + 2:
                return
            del self._text[: end + 2]
            self._take(size)
            if self._text[:2] != b"\r\n":
                raise WireError("a chunk of the answer is malformed")
            del self._text[:2]
