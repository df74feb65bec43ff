"""Pools in one process: threads, the main thread alone, and an event loop."""

from __future__ import annotations

import asyncio
import ctypes
import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Coroutine, Dict, List, Optional, Protocol

from ._engine import Engine, Held, Outcome
from .exceptions import PenstockError, SoftTimeLimitExceeded, TimeLimitExceeded


class Runner(Protocol):
    """What a worker does with jobs."""

    def run(self, held: Held) -> Optional[Outcome]:
        """Run a job in this thread, and never raise."""

    def arun(self, held: Held) -> "Optional[Coroutine[Any, Any, Optional[Outcome]]]":
        """The same on an event loop; None: the job has no coroutine."""

    def limits(self, held: Held) -> "tuple[Optional[float], Optional[float]]":
        """Seconds after which the job is told to end, and is ended."""


def raise_in(thread: int, kind: Optional[type]) -> None:
    """Let a thread raise an exception at its next step; None takes it back."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind) if kind else None)


class Clock:
    """Calls functions at their times, in one thread that starts with the first."""

    def __init__(self) -> None:
        self._cv = threading.Condition()
        self._due: Dict[object, Any] = {}
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def at(self, key: object, when: float, call: Any) -> None:
        with self._cv:
            self._due[key] = (when, call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-limits", daemon=True)
                self._thread.start()
            self._cv.notify()

    def cancel(self, key: object) -> None:
        with self._cv:
            self._due.pop(key, None)

    def close(self) -> None:
        with self._cv:
            self._closed = True
            self._cv.notify()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._cv:
                if self._closed:
                    return
                now = time.monotonic()
                ready = [(key, call) for key, (when, call) in self._due.items() if when <= now]
                for key, _ in ready:
                    del self._due[key]
                if not ready:
                    wait = min((when for when, _ in self._due.values()), default=now + 60) - now
                    self._cv.wait(max(wait, 0.001))
            for _, call in ready:
                call()


class _Limits:
    """The time limits of a job that runs in this process. Nothing can end a thread: at its
    ``time_limit`` a task gets an exception, as at its soft one."""

    def __init__(self, clock: Clock, pool: Any, runner: Runner, held: Held) -> None:
        self._clock, self._held = clock, held
        soft, hard = runner.limits(held)
        now = time.monotonic()
        self._set = [(("soft", held), soft, SoftTimeLimitExceeded), (("hard", held), hard, TimeLimitExceeded)]
        for key, seconds, kind in self._set:
            if seconds is not None:
                clock.at(key, now + seconds, lambda kind=kind: pool.limit(held, kind))

    def cancel(self) -> None:
        for key, seconds, _ in self._set:
            if seconds is not None:
                self._clock.cancel(key)


class ThreadsPool:
    """Each slot is a thread."""

    def __init__(self, size: int, runner: Runner) -> None:
        self.size = size
        self._runner = runner
        self._inbox: "queue.SimpleQueue[Optional[Held]]" = queue.SimpleQueue()
        self._clock = Clock()
        self._threads: List[threading.Thread] = []
        self._engine: Optional[Engine] = None

    def start(self, engine: Engine) -> None:
        self._engine = engine
        for i in range(self.size):
            thread = threading.Thread(target=self._loop, name=f"penstock-slot-{i}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, held: Held) -> None:
        self._inbox.put(held)

    def _loop(self) -> None:
        while self._step(None):
            pass

    def _step(self, timeout: Optional[float]) -> bool:
        """Run the next job; False: there will be none."""
        try:
            held = self._inbox.get(timeout=timeout)
        except queue.Empty:
            return True
        if held is None:
            return False
        self.run(held)
        return True

    def run(self, held: Held) -> None:
        engine = self._engine
        assert engine is not None
        held.slot = threading.get_ident()
        if not engine.begin(held):
            return
        outcome: Optional[Outcome] = None
        limits = _Limits(self._clock, self, self._runner, held)
        try:
            outcome = self._runner.run(held)
        except PenstockError:  # came so late that the job was over
            pass
        finally:
            limits.cancel()
            with held.mu:
                held.running = False
                raise_in(held.slot, None)
            engine.finished(held, outcome)

    def interrupt(self, held: Held, reason: PenstockError) -> None:
        self._raise(held, type(reason))

    def limit(self, held: Held, kind: type) -> None:
        self._raise(held, kind)

    def _raise(self, held: Held, kind: type) -> None:
        with held.mu:
            if held.running and held.slot is not None:
                raise_in(held.slot, kind)

    def stop(self, at_once: bool) -> None:
        if not at_once:
            for _ in range(self.size):
                self._inbox.put(None)
        else:
            self._clock.close()

    def close(self) -> None:
        self._clock.close()
        for thread in self._threads:
            thread.join(0.5)


class SoloPool(ThreadsPool):
    """The main thread runs the jobs, one after the other. Signals end what it waits for."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(1, runner)
        self._now: Optional[Held] = None
        self._pending: Any = None
        self._main = threading.get_ident()

    def start(self, engine: Engine) -> None:
        self._engine = engine
        if hasattr(signal, "SIGUSR1") and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, self._on_signal)

    def serve(self) -> None:
        """Run jobs until the pool stops."""
        while self._step(0.5):
            pass

    def run(self, held: Held) -> None:
        self._now = held
        super().run(held)
        self._now = self._pending = None

    def _on_signal(self, _number: int, _frame: Any) -> None:
        held, pending = self._now, self._pending
        self._pending = None
        if held is not None and pending is not None and held.running:
            raise pending

    def _raise(self, held: Held, kind: type) -> None:
        if not hasattr(signal, "SIGUSR1"):
            super()._raise(held, kind)
            return
        if self._now is held and held.running:
            self._pending = pending = held.reason if isinstance(held.reason, kind) else kind()
            threading.Thread(target=self._insist, args=(held, pending), name="penstock-interrupt", daemon=True).start()

    def _insist(self, held: Held, pending: BaseException) -> None:
        """Send the signal until its handler has run: one that comes right before a wait does not end it."""
        while self._pending is pending and self._now is held and held.running:
            signal.pthread_kill(self._main, signal.SIGUSR1)
            time.sleep(0.05)

    def stop(self, at_once: bool) -> None:
        self._inbox.put(None)


class _Driven:
    """A coroutine in which an exception can be raised where it waits."""

    def __init__(self, coroutine: "Coroutine[Any, Any, Any]") -> None:
        self._coroutine = coroutine
        self.reason: Optional[BaseException] = None

    def __await__(self) -> Any:
        it: Any = self._coroutine.__await__()
        send: Any = None
        error: Optional[BaseException] = None
        while True:
            try:
                step = it.throw(error) if error is not None else it.send(send)
            except StopIteration as done:
                return done.value
            error = None
            try:
                send = yield step
            except asyncio.CancelledError as cancelled:
                error = cancelled if self.reason is None else self.reason
                self.reason = None
            except BaseException as other:
                error = other


class LoopPool:
    """One event loop runs the coroutines, and threads the tasks that are none."""

    def __init__(self, size: int, runner: Runner) -> None:
        self.size = size
        self._runner = runner
        self._clock = Clock()
        self._threads = ThreadsPool(size, runner)
        self._engine: Optional[Engine] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        self._executor: Optional[ThreadPoolExecutor] = None
        self._stopped = False

    def start(self, engine: Engine) -> None:
        self._engine = self._threads._engine = engine
        ready = threading.Event()

        def serve() -> None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            self._loop.call_soon(ready.set)
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

        self._executor = ThreadPoolExecutor(self.size, "penstock-slot")
        self._thread = threading.Thread(target=serve, name="penstock-loop", daemon=True)
        self._thread.start()
        ready.wait()

    def submit(self, held: Held) -> None:
        assert self._loop is not None and self._executor is not None
        coroutine = self._runner.arun(held)
        if coroutine is None:
            self._executor.submit(self._threads.run, held)
        else:
            self._loop.call_soon_threadsafe(self._begin, held, coroutine)

    def _begin(self, held: Held, coroutine: "Coroutine[Any, Any, Optional[Outcome]]") -> None:
        assert self._engine is not None and self._loop is not None
        if not self._engine.begin(held):
            coroutine.close()
            return
        driven = _Driven(coroutine)

        async def run() -> Optional[Outcome]:
            outcome: Optional[Outcome] = await driven
            return outcome

        task = self._loop.create_task(run())
        held.slot = (driven, task)
        if held.reason is not None:  # told between its begin and now
            self._raise(held, held.reason)
        limits = _Limits(self._clock, self, self._runner, held)

        def done(task: "asyncio.Task[Optional[Outcome]]") -> None:
            limits.cancel()
            failed = task.cancelled() or task.exception() is not None
            assert self._engine is not None
            self._engine.finished(held, None if failed else task.result())

        task.add_done_callback(done)

    def interrupt(self, held: Held, reason: PenstockError) -> None:
        self._raise(held, reason)

    def limit(self, held: Held, kind: type) -> None:
        self._raise(held, kind())

    def _raise(self, held: Held, reason: Any) -> None:
        if not isinstance(held.slot, tuple):
            self._threads._raise(held, type(reason))
            return
        driven, task = held.slot

        def cancel() -> None:
            if not task.done():
                driven.reason = reason
                task.cancel()

        assert self._loop is not None
        self._loop.call_soon_threadsafe(cancel)

    def stop(self, at_once: bool) -> None:
        pass

    def close(self) -> None:
        self._clock.close()
        self._threads._clock.close()
        if self._loop is not None and not self._stopped:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            assert self._thread is not None and self._executor is not None
            self._thread.join(1.0)
            self._executor.shutdown(wait=False)
