"""The errors of Penstock, and those that Celery has under the same names."""

from __future__ import annotations

import builtins
from typing import Any, Optional

__all__ = [
    "BrokerError",
    "ChordNotSupported",
    "ConfigurationError",
    "EncodeError",
    "Gone",
    "Ignore",
    "ImproperlyConfigured",
    "InvalidSignature",
    "LeaseLost",
    "ManagementClosed",
    "MaxRetriesExceededError",
    "NotRegistered",
    "NotSupported",
    "OperationalError",
    "PenstockError",
    "RefusedError",
    "Reject",
    "ResponseFailed",
    "Retry",
    "SoftTimeLimitExceeded",
    "Stopped",
    "TaskError",
    "TaskRevokedError",
    "TimeLimitExceeded",
    "TimeoutError",
    "TooManyRequests",
    "UnavailableError",
    "WorkerLostError",
]


class PenstockError(Exception):
    """Any error of this package."""


class ConfigurationError(PenstockError, ValueError):
    """A setting or an argument cannot be used. Asking again is of no use."""


class ImproperlyConfigured(ConfigurationError):
    """Celery's name of a setting that cannot be used."""


class NotSupported(PenstockError, NotImplementedError):
    """A part of Celery that Penstock refuses. The text says why, and what to use instead."""


class ChordNotSupported(NotSupported):
    """Penstock has no chords."""


class BrokerError(PenstockError):
    """The broker did not do what it was asked.

    ``status`` is that of the answer, 0 without one, and ``code`` that of its problem. ``retry_after``
    has the seconds that the broker asks to wait.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", retry_after: Optional[float] = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class OperationalError(BrokerError):
    """Celery's name: the broker cannot be reached, or cannot do it now."""


class UnavailableError(OperationalError):
    """No usable answer came, or one that says *later*, until the tries were over.

    A message that was to be published may be stored. Publish it again with the same ID.
    """


class RefusedError(BrokerError):
    """The broker refuses the request, and will refuse it again."""


class ManagementClosed(RefusedError):
    """A resource has to be made or read, and the broker does not let this client."""


class ResponseFailed(RefusedError):
    """The message of a request is stored, and there will be no response."""


class LeaseLost(PenstockError):
    """Raised in a handler whose job is no longer this worker's: another one may have it."""


class Stopped(PenstockError):
    """Raised in a handler whose job was given back, because its worker ends at once."""


class TaskError(PenstockError):
    """A task failed with an exception that this process does not know.

    ``type_name`` is the name of the class of that exception.
    """

    type_name = "TaskError"


class TaskRevokedError(TaskError):
    """The task was revoked, or had expired, before it began."""


class WorkerLostError(TaskError):
    """The workers of the task ended without a word, more often than the queue bears."""


class TimeLimitExceeded(TaskError):
    """The task was ended at its ``time_limit``."""


class SoftTimeLimitExceeded(Exception):
    """Raised in a task at its ``soft_time_limit``."""


class TimeoutError(PenstockError, builtins.TimeoutError):
    """The result did not come in time."""


class MaxRetriesExceededError(PenstockError):
    """The task was tried again as often as ``max_retries`` allows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.task_args = kwargs.pop("task_args", ())
        self.task_kwargs = kwargs.pop("task_kwargs", {})
        super().__init__(*args)


class NotRegistered(PenstockError, KeyError):
    """No task has that name."""


class InvalidSignature(PenstockError, ValueError):
    """What a message or a chain has is no description of a task."""


class EncodeError(PenstockError, ValueError):
    """An argument or a result is no JSON."""


class TaskPredicate(PenstockError):
    """What a task raises to say how it ended."""


class Ignore(TaskPredicate):
    """Raised by a task: the job is over, and there is no result."""


class Reject(TaskPredicate):
    """Raised by a task: the job is a dead letter or, with ``requeue``, free for another worker."""

    def __init__(self, reason: Any = None, requeue: bool = False) -> None:
        self.reason = reason
        self.requeue = requeue
        super().__init__(reason, requeue)

    def __str__(self) -> str:
        return "" if self.reason is None else str(self.reason)


class Retry(TaskPredicate):
    """Raised by ``self.retry``: the task is tried again later."""

    def __init__(
        self,
        message: Optional[str] = None,
        exc: Optional[BaseException] = None,
        when: Optional[float] = None,
        is_eager: bool = False,
        sig: Any = None,
    ) -> None:
        self.message = message
        self.exc = exc
        self.when = when
        self.is_eager = is_eager
        self.sig = sig
        super().__init__(message, exc, when)

    def __str__(self) -> str:
        if self.message:
            return self.message
        if self.exc is not None:
            return f"Retry in {self.when}s: {self.exc!r}"
        return f"Retry in {self.when}s"


class Gone(PenstockError):
    """Raised by a push handler: answer 410, after which the broker holds the jobs of the consumer."""


class TooManyRequests(PenstockError):
    """Raised by a push handler: answer 429, with ``Retry-After`` if it is given, in seconds."""

    def __init__(self, message: str = "Too many requests.", *, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
