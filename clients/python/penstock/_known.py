"""The memory of a worker: what it has done and the broker does not count as done."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Deque, Dict, Optional

from ._types import Job, Reply

MOST_KNOWN = 1000
MOST_KNOWN_BYTES = 8 << 20


@dataclass
class _Done:
    attempt: int
    reply: Optional[Reply]

    @property
    def size(self) -> int:
        return 0 if self.reply is None else len(self.reply.body)


class Known:
    """Jobs that this worker has done, and whose reports are under way or came after the lease. If such a
    job comes again, it is reported and not done again. The oldest of those that were refused are forgotten."""

    def __init__(self) -> None:
        self._mu = threading.Lock()
        self._done: Dict[str, _Done] = {}  # by job
        self._bytes = 0
        self._refused: Deque[str] = deque()

    def add(self, job: Job, reply: Optional[Reply]) -> None:
        with self._mu:
            self._forget(job.id)
            self._done[job.id] = done = _Done(job.attempt, reply)
            self._bytes += done.size

    def _forget(self, job: str) -> None:
        done = self._done.pop(job, None)
        if done is not None:
            self._bytes -= done.size

    def taken(self, job: str) -> None:
        """The broker has the report."""
        with self._mu:
            self._forget(job)

    def refused(self, job: str) -> None:
        """The broker does not take the report: the job comes again, here or elsewhere."""
        with self._mu:
            if job in self._done:
                self._refused.append(job)
            while len(self._refused) > MOST_KNOWN or self._bytes > MOST_KNOWN_BYTES and self._refused:
                self._forget(self._refused.popleft())

    def of(self, job: Job) -> Optional[_Done]:
        """How this worker has done the job. The attempts of one that was redriven begin again, and a replay
        is there to do it once more."""
        with self._mu:
            done = self._done.get(job.id)
        return done if done is not None and job.attempt > done.attempt and not job.replay else None
