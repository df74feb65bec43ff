"""Connections of a Client: kept alive, safe for threads and forks, with a deadline for each request."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from typing import Any, List, Optional

from ._core import Call, Lost
from ._settings import Address
from ._wire import Answer, Reader, WireError, request_bytes

IDLE = 50.0  # seconds after which a connection that rests is not used again
MOST_IDLE = 32


class Poll:
    """A claim that may be ended from another thread."""

    def __init__(self) -> None:
        self._mu = threading.Lock()
        self._sock: Optional[socket.socket] = None
        self._tls = False
        self._deadline: Optional[float] = None

    def begin(self, sock: socket.socket, tls: bool) -> None:
        with self._mu:
            self._sock, self._tls = sock, tls
            if self._deadline is not None:
                self._hang_up()

    def end(self) -> None:
        with self._mu:
            self._sock = None

    @property
    def deadline(self) -> Optional[float]:
        return self._deadline

    def stop(self, within: float) -> None:
        """Tell the broker that nobody waits. An answer that is on its way is still read."""
        with self._mu:
            self._deadline = time.monotonic() + within
            if self._sock is not None:
                self._hang_up()

    def _hang_up(self) -> None:
        assert self._sock is not None
        try:
            # Only our half is closed: the broker sees it and leases no job, and an answer that it has
            # written already still comes.
            if self._tls:
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            else:
                self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class _Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.rested = time.monotonic()

    def usable(self) -> bool:
        """The other side has neither closed it nor sent what nobody asked for."""
        if time.monotonic() - self.rested > IDLE:
            return False
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self.sock, select.POLLIN | select.POLLERR | select.POLLHUP)
                return not poll.poll(0)
            return not select.select([self.sock], [], [], 0)[0]
        except (OSError, ValueError):
            return False


class Sockets:
    """Sends requests, each over a connection of its own while it is under way."""

    def __init__(self, address: Address, context: Optional[ssl.SSLContext] = None) -> None:
        self._address = address
        self._context = context or (ssl.create_default_context() if address.tls else None)
        self._mu = threading.Lock()
        self._idle: List[_Connection] = []
        self._pid = os.getpid()
        self._closed = False

    def send(self, call: Call) -> Answer:
        """The answer; Lost: there is none."""
        a = self._address
        data = request_bytes(call.method, call.target, a.authority, call.headers, call.body)
        deadline = time.monotonic() + call.timeout
        poll: Any = call.poll
        connection: Optional[_Connection] = None
        answer: Optional[Answer] = None
        try:
            connection = self._take() or self._connect(deadline)
            if poll is not None:
                poll.begin(connection.sock, a.tls)
            answer = _exchange(connection.sock, data, Reader(bodyless=call.method == "HEAD"), deadline, poll)
            return answer
        except socket.timeout:
            raise Lost(f"no answer within {call.timeout:g} s") from None
        except (OSError, WireError) as error:
            raise Lost(_text(error)) from None
        finally:
            if poll is not None:
                poll.end()
            if connection is not None:
                if answer is not None and answer.keep and (poll is None or poll.deadline is None):
                    self._give(connection)
                else:
                    connection.sock.close()

    def _connect(self, deadline: float) -> _Connection:
        a = self._address
        sock = socket.create_connection((a.host, a.port), timeout=_left(deadline))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_hostname=a.host)
        except BaseException:
            sock.close()
            raise
        return _Connection(sock)

    def _take(self) -> Optional[_Connection]:
        while True:
            with self._mu:
                self._after_fork()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.sock.close()

    def _give(self, connection: _Connection) -> None:
        connection.rested = time.monotonic()
        with self._mu:
            self._after_fork()
            if not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.sock.close()

    def _after_fork(self) -> None:
        """The connections of the parent process are the parent's."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for connection in self._idle:
                connection.sock.close()
            self._idle = []

    def close(self) -> None:
        with self._mu:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout()
    return left


def _exchange(sock: socket.socket, data: bytes, reader: Reader, deadline: float, poll: Any) -> Answer:
    view = memoryview(data)
    while view:
        sock.settimeout(_left(deadline))
        try:
            view = view[sock.send(view[: 1 << 20]) :]
        except (BrokenPipeError, ConnectionResetError):
            break  # a refusal may have come before the whole request was sent
    while True:
        end = deadline if poll is None or poll.deadline is None else min(deadline, poll.deadline)
        # A poll that is stopped meanwhile has another deadline, so none waits longer than a second.
        sock.settimeout(_left(end) if poll is None else min(_left(end), 1.0))
        try:
            got = sock.recv(1 << 16)
        except socket.timeout:
            _left(end)
            continue
        answer = reader.feed(got)
        if answer is not None:
            return answer


def _text(error: BaseException) -> str:
    if isinstance(error, WireError):
        return str(error)
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "the connection broke"
    if isinstance(error, socket.gaierror):
        return "the name of the broker is not known"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'failed'}"
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'failed'}"
