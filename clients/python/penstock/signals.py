"""Signals, with Celery's names."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Callable, List, Optional, Tuple, TypeVar

log = logging.getLogger("penstock.signals")
F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "Signal",
    "task_failure",
    "task_postrun",
    "task_prerun",
    "task_retry",
    "task_success",
    "worker_init",
    "worker_process_init",
    "worker_ready",
    "worker_shutdown",
    "worker_shutting_down",
]


class Signal:
    """Tells receivers of something. A receiver that raises harms nobody: its error is logged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._mu = threading.Lock()
        self._receivers: List[Tuple[Any, Any, Callable[[], Any]]] = []

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"

    def connect(self, *args: Any, sender: Any = None, weak: bool = True, dispatch_uid: Any = None, **_: Any) -> Any:
        """Connect a function; also a decorator, with or without arguments."""

        def register(function: F) -> F:
            key = dispatch_uid if dispatch_uid is not None else (getattr(function, "__module__", ""), id(function))
            get: Callable[[], Any]
            if weak and hasattr(function, "__self__"):
                get = weakref.WeakMethod(function)
            else:
                # A function is kept: Celery's users decorate functions that nothing else refers to.
                def get() -> F:
                    return function

            with self._mu:
                self._receivers = [r for r in self._receivers if r[0] != (key, id(sender))]
                self._receivers.append(((key, id(sender)), sender, get))
            return function

        if args and callable(args[0]):
            return register(args[0])
        return register

    def disconnect(self, receiver: Optional[Callable[..., Any]] = None, sender: Any = None, dispatch_uid: Any = None, **_: Any) -> bool:
        key = dispatch_uid if dispatch_uid is not None else (getattr(receiver, "__module__", ""), id(receiver))
        with self._mu:
            before = len(self._receivers)
            self._receivers = [r for r in self._receivers if r[0] != (key, id(sender))]
            return len(self._receivers) < before

    def send(self, sender: Any, **named: Any) -> List[Tuple[Any, Any]]:
        out = []
        for _, wanted, get in list(self._receivers):
            if wanted is not None and wanted is not sender and wanted != sender:
                continue
            receiver = get()
            if receiver is None:
                continue
            try:
                answer = receiver(signal=self, sender=sender, **named)
            except Exception as error:
                log.exception("a receiver of the signal %s failed", self.name)
                answer = error
            out.append((receiver, answer))
        return out

    @property
    def receivers(self) -> List[Any]:
        return [get() for _, _, get in self._receivers]


task_prerun = Signal("task_prerun")
task_postrun = Signal("task_postrun")
task_success = Signal("task_success")
task_failure = Signal("task_failure")
task_retry = Signal("task_retry")
worker_init = Signal("worker_init")
worker_process_init = Signal("worker_process_init")
worker_ready = Signal("worker_ready")
worker_shutting_down = Signal("worker_shutting_down")
worker_shutdown = Signal("worker_shutdown")
