"""The client of the message broker Penstock.

``Client`` and ``AsyncClient`` speak with a broker, ``Worker`` works on the jobs of queues, and
``Penstock`` (or ``Celery``) is an app with tasks in Celery's form.
"""

from __future__ import annotations

from . import exceptions, schedules, signals, states
from ._task import Task
from ._types import Job, Message, Published, Response
from ._version import __version__
from .aio import AsyncClient
from .app import Celery, Penstock, current_app, current_task, shared_task
from .canvas import Signature, chain, chord, group, signature, subtask
from .client import Client
from .exceptions import (
    BrokerError,
    ChordNotSupported,
    Gone,
    Ignore,
    LeaseLost,
    ManagementClosed,
    MaxRetriesExceededError,
    NotSupported,
    PenstockError,
    RefusedError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    Stopped,
    TaskRevokedError,
    TimeLimitExceeded,
    TimeoutError,
    TooManyRequests,
    UnavailableError,
)
from .result import AsyncResult, EagerResult, GroupResult
from .schedules import crontab, schedule
from .worker import Context, Worker

__all__ = [
    "AsyncClient",
    "AsyncResult",
    "BrokerError",
    "Celery",
    "ChordNotSupported",
    "Client",
    "Context",
    "EagerResult",
    "Gone",
    "GroupResult",
    "Ignore",
    "Job",
    "LeaseLost",
    "ManagementClosed",
    "MaxRetriesExceededError",
    "Message",
    "NotSupported",
    "Penstock",
    "PenstockError",
    "Published",
    "RefusedError",
    "Reject",
    "Response",
    "Retry",
    "Signature",
    "SoftTimeLimitExceeded",
    "Stopped",
    "Task",
    "TaskRevokedError",
    "TimeLimitExceeded",
    "TimeoutError",
    "TooManyRequests",
    "UnavailableError",
    "Worker",
    "__version__",
    "chain",
    "chord",
    "crontab",
    "current_app",
    "current_task",
    "exceptions",
    "group",
    "schedule",
    "schedules",
    "shared_task",
    "signals",
    "signature",
    "states",
    "subtask",
]
