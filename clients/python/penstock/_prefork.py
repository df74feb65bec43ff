"""The pool of processes.

A process is forked while this one has a single thread and the app is loaded: the template. It forks the
processes of the slots, also later, when one has ended. Here each slot has a thread that sends its process
one job after the other. This process claims, renews and reports, and runs no task, so code that never
lets go of the interpreter, or crashes, takes no lease with it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import logging
import os
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from ._engine import Engine, Held, Outcome
from .exceptions import LeaseLost, PenstockError, SoftTimeLimitExceeded

log = logging.getLogger("penstock.worker")

_SOFT, _LOST = signal.SIGUSR1, getattr(signal, "SIGUSR2", 0)


def available() -> bool:
    return hasattr(os, "fork") and hasattr(socket, "send_fds")


def _send(sock: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    sock.sendall(struct.pack(">I", len(data)) + data)


def _receive(sock: socket.socket) -> Any:
    """A frame; None: the other side has ended."""
    head = _exactly(sock, 4)
    if head is None:
        return None
    data = _exactly(sock, struct.unpack(">I", head)[0])
    return None if data is None else json.loads(data)


def _exactly(sock: socket.socket, n: int) -> Optional[bytes]:
    parts, left = [], n
    while left:
        try:
            data = sock.recv(min(left, 1 << 20))
        except ConnectionResetError:
            return None
        if not data:
            return None
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _die_with_parent() -> None:
    """Linux ends a process whose parent was killed."""
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        except (OSError, AttributeError):
            pass


class PreforkPool:
    """Each slot is a process."""

    def __init__(self, size: int, runner: Any) -> None:
        self.size = size
        self.most_tasks: Optional[int] = None
        self._runner = runner
        self._inbox: "queue.SimpleQueue[Optional[Held]]" = queue.SimpleQueue()
        self._slots: List[_Slot] = []
        self._engine: Optional[Engine] = None
        self._template: Optional[socket.socket] = None
        self._template_pid = 0
        self._mu = threading.Lock()
        self._at_once = False

    def fork(self) -> None:
        """Make the template. No other thread may run yet."""
        if self._template is not None:
            return
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            try:
                _template(theirs, self._runner)
            finally:
                os._exit(0)
        theirs.close()
        self._template, self._template_pid = ours, pid

    def start(self, engine: Engine) -> None:
        self._engine = engine
        self.fork()
        for _ in range(self.size):
            slot = _Slot(self)
            self._slots.append(slot)
            slot.spawn()
        for slot in self._slots:
            slot.thread.start()

    def spawn(self) -> "tuple[int, socket.socket]":
        """A new process, and the connection to it."""
        ours, theirs = socket.socketpair()
        with self._mu:
            assert self._template is not None
            socket.send_fds(self._template, [b"F"], [theirs.fileno()])
            theirs.close()
            pid = _exactly(self._template, 8)
        if pid is None:
            ours.close()
            raise OSError("the template process has ended")
        return struct.unpack(">q", pid)[0], ours

    def submit(self, held: Held) -> None:
        self._inbox.put(held)

    def interrupt(self, held: Held, reason: PenstockError) -> None:
        if isinstance(held.slot, _Slot):
            held.slot.interrupt(held, reason)

    def stop(self, at_once: bool) -> None:
        if not at_once:
            for _ in range(self.size):
                self._inbox.put(None)
            return
        self._at_once = True
        for slot in self._slots:
            slot.kill_later()

    def close(self) -> None:
        for slot in self._slots:
            slot.end()
        if self._template is not None:
            self._template.close()
            self._template = None
            end = time.monotonic() + 2.0
            while time.monotonic() < end:
                try:
                    if os.waitpid(self._template_pid, os.WNOHANG)[0]:
                        return
                except ChildProcessError:
                    return
                time.sleep(0.01)
            os.kill(self._template_pid, signal.SIGKILL)


class _Slot:
    """A process, and the thread that gives it jobs."""

    def __init__(self, pool: PreforkPool) -> None:
        self._pool = pool
        self._mu = threading.Lock()
        self.pid = 0
        self.sock: Optional[socket.socket] = None
        self._held: Optional[Held] = None
        self._done = 0
        self._kill_at: Optional[float] = None
        self.thread = threading.Thread(target=self._loop, name="penstock-slot", daemon=True)

    def spawn(self) -> None:
        self.pid, self.sock = self._pool.spawn()
        self._done = 0

    def end(self) -> None:
        """Let the process end after its job; at once where the pool ends at once."""
        with self._mu:
            if self.sock is not None:
                if self._pool._at_once and self.pid:
                    self._signal(signal.SIGKILL)
                self.sock.close()
                self.sock = None

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def kill_later(self) -> None:
        """After a second in which the handler may end by itself."""
        self._kill_at = time.monotonic() + 1.0

    def interrupt(self, held: Held, reason: PenstockError) -> None:
        # The process gets its next job from this thread's lock only, so no signal is for another one.
        with self._mu:
            if self._held is held and self.sock is not None:
                self._signal(_LOST)

    def _loop(self) -> None:
        while True:
            held = self._pool._inbox.get()
            if held is None:
                return
            engine = self._pool._engine
            assert engine is not None
            held.slot = self
            if not engine.begin(held):
                continue
            outcome: Optional[Outcome] = None
            try:
                outcome = self._run(held)
            except Exception:
                log.exception("job %s: the worker failed", held.job.id)
                self._replace()
            engine.finished(held, outcome)

    def _run(self, held: Held) -> Optional[Outcome]:
        runner = self._pool._runner
        found = runner.find(held)
        if isinstance(found, Outcome):
            return found
        if self.sock is None or self._pool.most_tasks and self._done >= self._pool.most_tasks:
            self._replace()
        assert self.sock is not None
        job = dataclasses.asdict(held.job)
        job["payload"] = held.job.payload.decode("utf-8", "surrogateescape")
        soft, hard = runner.limits(held)
        with self._mu:
            self._held = held
        try:
            _send(self.sock, {"job": job})
            answer = self._wait(held, soft, hard)
        except OSError:
            answer = None
        finally:
            with self._mu:
                self._held = None
        self._done += 1
        if isinstance(answer, Outcome):
            return answer
        if answer is None:
            self._replace()
            if held.reason is None and not self._pool._at_once:
                log.error("job %s: the process of its task ended; the job comes again when its lease ends", held.job.id)
            return None
        if not answer:
            return None
        response = answer.pop("response")
        outcome = Outcome(**answer, response=None if response is None else response.encode("utf-8", "surrogateescape"))
        runner.respond(held.job, outcome)
        return outcome

    def _wait(self, held: Held, soft: Optional[float], hard: Optional[float]) -> Any:
        """The answer of the process, None if it has ended, or the outcome of a task that took too long."""
        from ._work import time_limit_outcome

        assert self.sock is not None
        begun = time.monotonic()
        while True:
            now = time.monotonic()
            if soft is not None and now >= begun + soft:
                soft = None
                self._signal(_SOFT)
            if hard is not None and now >= begun + hard:
                log.error("job %s: its task is ended after %g s", held.job.id, hard)
                self._replace()
                return time_limit_outcome(hard)
            if self._kill_at is not None and now >= self._kill_at:
                self._signal(signal.SIGKILL)
            ends = [begun + limit for limit in (soft, hard) if limit is not None] + [now + 0.5]
            if select.select([self.sock], [], [], max(0.0, min(ends) - now))[0]:
                return _receive(self.sock)

    def _replace(self) -> None:
        """End the process and make another one."""
        with self._mu:
            if self.sock is not None:
                self.sock.close()
                self.sock = None
                if self._done < (self._pool.most_tasks or 1 << 60):
                    self._signal(signal.SIGKILL)
            if not self._pool._at_once:
                try:
                    self.spawn()
                except OSError as error:
                    log.error("no process can be made: %s", error)


# What the template and the processes of the slots do.


def _quiet(_number: int, _frame: Any) -> None:
    """Signals of a terminal or a supervisor go to the whole group: the parent process decides."""


def _template(sock: socket.socket, runner: Any) -> None:
    _die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _quiet)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of slots
    while True:
        word, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not word or not fds:
            return
        pid = os.fork()
        if pid == 0:
            sock.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 1
            try:
                _child(socket.socket(fileno=fds[0]), runner)
                code = 0
            except BaseException:
                log.exception("the process of a slot failed")
            finally:
                logging.shutdown()
                try:
                    sys.stdout.flush()
                    sys.stderr.flush()
                except (OSError, ValueError):
                    pass
                os._exit(code)
        os.close(fds[0])
        sock.sendall(struct.pack(">q", pid))


class _Now:
    """The job that this process runs, for its signals."""

    runs = False


def _child(sock: socket.socket, runner: Any) -> None:
    _die_with_parent()
    now = _Now()

    def interrupt(kind: type) -> Any:
        def handler(_number: int, _frame: Any) -> None:
            if now.runs:
                now.runs = False
                raise kind(*(("another worker may have the job",) if kind is LeaseLost else ()))

        return handler

    signal.signal(_SOFT, interrupt(SoftTimeLimitExceeded))
    if _LOST:
        signal.signal(_LOST, interrupt(LeaseLost))
    import random

    random.seed()
    runner.child_started()
    while True:
        frame = _receive(sock)
        if frame is None:
            return
        answer: Dict[str, Any] = {}
        try:
            now.runs = True
            answer = runner.child(frame)
        except (LeaseLost, SoftTimeLimitExceeded):
            pass  # after the task had ended
        finally:
            now.runs = False
        try:
            _send(sock, answer)
        except OSError:
            return
