"""The worker protocol: claim what is free, renew in time, report in batches, give back on stop.

See docs/explain/worker-protocol.md of Penstock. The engine has three threads for each queue, which run
no code of a user: one claims, one renews leases, one reports. A pool runs the jobs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, List, Optional, Protocol, Sequence, Tuple

from ._core import backoff
from ._known import Known
from ._sockets import Poll
from ._types import Job, Move, Moved, Reply
from .client import Client
from .exceptions import BrokerError, LeaseLost, PenstockError, RefusedError, Stopped, UnavailableError

log = logging.getLogger("penstock.worker")

BATCH_UPDATES = 500
BATCH_BYTES = 200 << 10
BATCH_WAIT = 0.005
MOST_REPLY = 64 << 10  # bytes of a response in a report
SILENT = 30.0  # seconds until responses are sent again to a consumer that took none
MOST_UNREPORTED = 2000
MOST_TASKS = 64
POLL_ENDS = 2.5  # seconds that the broker has to end a claim that waits
ABORT_WITHIN = 3.0
REPORT_WITHIN = 10.0  # seconds for the last reports of a worker that stops


@dataclass
class Outcome:
    """How a job ended, or goes on."""

    state: str  # DELIVERED, DEAD, QUEUED
    delay: int = 0
    failed: bool = False
    reason: str = ""
    detail: str = ""
    response: Optional[bytes] = None
    response_type: str = "application/json"

    @property
    def reply(self) -> Optional[Reply]:
        return None if self.response is None else Reply(self.response, self.response_type)


def post_large(client: Client, job: Job, outcome: Optional[Outcome]) -> None:
    """Post a response that is too large to go along with the report, before the job is done."""
    reply = None if outcome is None else outcome.reply
    # A character takes at most six bytes of a report.
    if outcome is None or reply is None or 6 * len(reply.body) <= MOST_REPLY or reply.size() <= MOST_REPLY:
        return
    client.respond(job, reply.body, content_type=reply.content_type)
    outcome.response = None


class Held:
    """A job that this worker has, from the claim to the report."""

    def __init__(self, job: Job, queue: "Queue", claimed: float, lease: float) -> None:
        self.job = job
        self.queue = queue
        self.mu = threading.Lock()
        self.renew_at = claimed + lease / 3
        self.lease_end = claimed + lease
        self.renewals_failed = 0
        self.running = False
        self.over = False  # finished, lost or given back: nothing of it is reported any more
        self.reason: Optional[PenstockError] = None  # why the handler has to end
        self.event = threading.Event()  # set with reason
        self.waits = False  # the handler is in sleep()
        self.slot: Any = None  # what the pool knows of it

    def sleep(self, seconds: float) -> None:
        """Wait; raises LeaseLost or Stopped as soon as the job is not the worker's any more."""
        with self.mu:
            if self.reason is not None:
                raise self.reason
            self.waits = True
        try:
            self.event.wait(seconds)
        finally:
            with self.mu:
                self.waits = False
        if self.reason is not None:
            raise self.reason

    def tell(self, reason: PenstockError) -> bool:
        """Note why the handler has to end; False: it has ended, or was told."""
        with self.mu:
            if self.reason is not None or not self.running:
                return False
            self.reason = reason
            self.event.set()
            return not self.waits


class Pool(Protocol):
    """Runs jobs, each in a slot of its own."""

    size: int

    def start(self, engine: "Engine") -> None: ...

    def submit(self, held: Held) -> None:
        """Run a job; the engine submits no more than there are slots."""

    def interrupt(self, held: Held, reason: PenstockError) -> None:
        """Raise an exception in the handler of a running job."""

    def stop(self, at_once: bool) -> None:
        """Let the slots end after their jobs, or at once."""


@dataclass(eq=False)
class Queue:
    """A queue that the worker serves: a pull consumer."""

    channel: str
    consumer: str
    moves: Deque[Tuple[Move, Optional[Held]]] = field(default_factory=deque)
    polled: float = 0.0
    idle: bool = False  # waits for a slot, not for the broker
    poll: Optional[Poll] = None
    silent: float = 0.0  # until then no responses go along: the consumer takes none

    @property
    def key(self) -> Tuple[str, str]:
        return self.channel, self.consumer


class Engine:
    """One worker of some queues."""

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        pool: Pool,
        *,
        lease: int,
        wait: float = 20.0,
        tasks: Sequence[str] = (),
        version: str = "",
    ) -> None:
        self.client = client
        self.pool = pool
        self.lease = lease
        self.wait = max(0.0, min(wait, 20.0))
        self.queues = [Queue(q, q) for q in dict.fromkeys(queues)]
        self.about = _about(version, pool.size, tasks)
        self.cv = threading.Condition()
        self.free = pool.size
        self.line: Deque[Queue] = deque()
        self.held: Dict[Tuple[str, str], Held] = {}
        self.known = Known()
        self.unreported = 0
        self.stopping = threading.Event()
        self.aborted = threading.Event()
        self.ended = threading.Event()
        self.error: Optional[PenstockError] = None
        self.counts = {"done": 0, "failed": 0, "given_back": 0, "lost": 0, "unknown": 0}
        self._abort_by = 0.0
        self._report_by: Optional[float] = None  # until when the last reports are tried
        self._threads: List[threading.Thread] = []

    # Start and stop

    def start(self) -> None:
        now = time.monotonic()
        self.pool.start(self)
        for q in self.queues:
            q.polled = now
            for loop in (self._claim_loop, self._renew_loop, self._report_loop):
                thread = threading.Thread(target=loop, args=(q,), name=f"penstock-{loop.__name__.strip('_')}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Claim nothing any more, give unstarted jobs back, let running ones finish."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        with self.cv:
            for q in self.queues:
                if q.poll is not None:
                    q.poll.stop(POLL_ENDS)
            unstarted = [held for held in self.held.values() if not held.running and not held.over]
            self.cv.notify_all()
        for held in unstarted:
            self._give_back(held, "the worker stops")
        self.pool.stop(False)

    def abort(self) -> None:
        """Give running jobs back, too, and tell their handlers."""
        self._abort_by = self._report_by = time.monotonic() + ABORT_WITHIN
        self.stop()
        if self.aborted.is_set():
            return
        self.aborted.set()
        with self.cv:
            running = [held for held in self.held.values() if not held.over]
        for held in running:
            if self._give_back(held, "the worker was ended"):
                self._tell(held, Stopped("the worker ends, and the job was given back"))
        self.pool.stop(True)
        with self.cv:
            self.cv.notify_all()

    def fail(self, error: PenstockError) -> None:
        """End in order because of an error."""
        if self.error is None:
            self.error = error
            log.error("the worker ends: %s", error)
        self.stop()

    def join(self, timeout: Optional[float] = None) -> bool:
        """Wait until all is reported. After an abort that has a bound."""
        end = None if timeout is None else time.monotonic() + timeout
        with self.cv:
            while True:
                if self.stopping.is_set() and not self.held and self.unreported == 0 and not any(
                    q.poll is not None for q in self.queues
                ):
                    break
                now = time.monotonic()
                if self._report_by is None and self.stopping.is_set() and not any(
                    held.running for held in self.held.values()
                ):
                    self._report_by = now + REPORT_WITHIN
                if self.aborted.is_set() and now >= self._abort_by:
                    break
                if end is not None and now >= end:
                    return False
                self.cv.wait(0.2)
        self.ended.set()
        with self.cv:
            self.cv.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, self._abort_by - time.monotonic()) + 0.5 if self.aborted.is_set() else POLL_ENDS + 5)
        return True

    # Claims

    def _claim_loop(self, q: Queue) -> None:
        failures, found = 0, True
        while not self.stopping.is_set():
            n = self._take_slots(q, found)
            if n == 0:
                continue
            got: List[Job] = []
            pause: Optional[float] = None
            begun = time.monotonic()
            try:
                wait = self._wait_of(found)
                poll = Poll()
                with self.cv:
                    q.poll = None if self.stopping.is_set() else poll
                if q.poll is None:
                    continue
                got, pause, _ = self.client._run(
                    self.client._core.claim(q.channel, q.consumer, n, wait, self.lease, self.about, poll, tries=1)
                )
                now = time.monotonic()
                if not got and not pause and wait and now - begun < wait / 2:
                    pause = 1.0  # a broker that does not wait
                failures, found, q.polled = 0, bool(got), now
            except UnavailableError as error:
                pause = backoff(failures) if error.retry_after is None else error.retry_after
                failures += 1
                if not self.stopping.is_set():
                    (log.warning if failures in (1, 10) else log.debug)("queue %s: %s", q.channel, error)
            except BrokerError as error:
                self.fail(error)
            except Exception as error:  # a bug must not leave a worker that lives and claims nothing
                log.exception("queue %s: the claim failed", q.channel)
                self.fail(PenstockError(f"the claim failed: {error!r}"))
            finally:
                self._return_slots(q, n, got, begun)
            if pause:
                self.stopping.wait(pause)

    def _wait_of(self, found: bool) -> float:
        if len(self.queues) == 1:
            return self.wait
        if found:
            return 0.0
        # Where there are fewer slots than queues, the claims that wait take turns.
        return self.wait if self.pool.size >= len(self.queues) else min(self.wait, 1.0)

    def _take_slots(self, q: Queue, found: bool) -> int:
        with self.cv:
            q.idle = True
            self.line.append(q)  # in turn: a queue that just had a slot comes after those that wait for one
            while not self.stopping.is_set() and (
                self.free == 0 or self.unreported >= MOST_UNREPORTED or self.line[0] is not q
            ):
                self.cv.wait(1.0)
            q.idle = False
            self.line.remove(q)
            self.cv.notify_all()
            if self.stopping.is_set():
                return 0
            # A claim that waits holds one slot where other queues need the rest.
            n = min(self.free if len(self.queues) == 1 or found else 1, BATCH_UPDATES)
            self.free -= n
            return n

    def _return_slots(self, q: Queue, n: int, got: Sequence[Job], begun: float) -> None:
        start: List[Held] = []
        with self.cv:
            q.poll = None
            for job in got:
                held = Held(job, q, begun, self.lease)
                self.held[(job.id, job.lease)] = held
                start.append(held)
            self.free += n - min(n, len(got))
            extra = start[n:]  # a broker gives no more than it was asked for; no slot is there for them
            self.cv.notify_all()
            stopping = self.stopping.is_set()
        for held in start:
            if stopping or held in extra:
                if held not in extra:
                    with self.cv:
                        self.free += 1
                self._give_back(held, "the worker has no slot for it", slotless=True)
            elif not self._was_done(held):
                self.pool.submit(held)

    def _was_done(self, held: Held) -> bool:
        """Report a job that this worker has done before, instead of doing it again."""
        done = self.known.of(held.job)
        if done is None:
            return False
        log.info("queue %s: job %s was done here and came again; it is not done twice", held.queue.channel, held.job.id)
        with held.mu:
            over, held.over = held.over, True
        self._free_slot()
        if not over:
            self.known.add(held.job, done.reply)
            self._report(held, Move(held.job.id, held.job.lease, "DELIVERED", reply=done.reply))
        return True

    # What a pool says

    def begin(self, held: Held) -> bool:
        """A slot begins a job; False: it was given back."""
        with held.mu:
            if held.over:
                started = False
            else:
                started = held.running = True
        if not started:
            self._free_slot()
        return started

    def finished(self, held: Held, outcome: Optional[Outcome]) -> None:
        """A slot has ended a job. None: the lease is left to its end, so that it counts as lost."""
        with held.mu:
            held.running = False
            over, held.over = held.over, True
        done = outcome is not None and outcome.state == "DELIVERED"
        if outcome is not None and done:
            self.known.add(held.job, outcome.reply)
        self._free_slot()
        if over:
            if done:
                self.known.refused(held.job.id)
            return
        if outcome is None:
            self._drop(held)
            return
        job = held.job
        if outcome.state == "DELIVERED":
            self.counts["done"] += 1
        elif outcome.failed or outcome.state == "DEAD":
            self.counts["failed"] += 1
        else:
            self.counts["given_back"] += 1
        self._report(
            held,
            Move(
                job.id, job.lease, outcome.state, outcome.delay, outcome.failed, outcome.reason, outcome.detail, reply=outcome.reply
            ),
        )

    def _free_slot(self) -> None:
        with self.cv:
            self.free += 1
            self.cv.notify_all()

    def _drop(self, held: Held) -> None:
        with self.cv:
            self.held.pop((held.job.id, held.job.lease), None)
            self.cv.notify_all()

    def _give_back(self, held: Held, reason: str, slotless: bool = False, delay: int = 0) -> bool:
        with held.mu:
            if held.over:
                return False
            held.over = True
        self.counts["given_back"] += 1
        self._report(held, Move(held.job.id, held.job.lease, "QUEUED", delay, False, reason))
        return True

    def _tell(self, held: Held, reason: PenstockError) -> None:
        if held.tell(reason):
            self.pool.interrupt(held, reason)

    # Renewals

    def _renew_loop(self, q: Queue) -> None:
        while not self.ended.is_set():
            with self.cv:
                now = time.monotonic()
                mine = [held for held in self.held.values() if held.queue is q]
                due = [held for held in mine if held.renew_at <= now]
                if not due:
                    next_at = min((held.renew_at for held in mine), default=now + 1.0)
                    self.cv.wait(max(0.001, min(next_at - now, 1.0)))
                    continue
            for i in range(0, len(due), BATCH_UPDATES):
                self._renew(q, due[i : i + BATCH_UPDATES])

    def _renew(self, q: Queue, due: Sequence[Held]) -> None:
        moves = [Move(held.job.id, held.job.lease, "INFLIGHT", timeout=self.lease) for held in due]
        begun = time.monotonic()
        try:
            moved = self.client._run(self.client._core.move(q.channel, q.consumer, moves, self.about, tries=1))
        except (BrokerError, ValueError) as error:
            log.debug("queue %s: leases were not renewed: %s", q.channel, error)
            moved = None
        now = time.monotonic()
        for i, held in enumerate(due):
            if moved is not None and moved[i].ok:
                held.renewals_failed = 0
                held.renew_at, held.lease_end = begun + self.lease / 3, begun + self.lease
            elif moved is not None and moved[i].code in ("lease_lost", "job_not_found"):
                self._lost(held)
            elif now >= held.lease_end:
                self._lost(held)
            else:
                held.renewals_failed += 1
                held.renew_at = min(now + min(self.lease / 10, backoff(held.renewals_failed) + 0.05), held.lease_end)

    def _lost(self, held: Held) -> None:
        with held.mu:
            if held.over and not held.running:
                held.renew_at = time.monotonic() + self.lease  # its report is under way, and will say so
                return
            over, held.over = held.over, True
        if not over:
            self.counts["lost"] += 1
            log.warning("queue %s: the lease of job %s is lost", held.queue.channel, held.job.id)
        self._tell(held, LeaseLost(f"the lease of job {held.job.id} is lost: another worker may have the job"))
        self._drop(held)

    # Reports

    def _report(self, held: Optional[Held], move: Move) -> None:
        assert held is not None
        with self.cv:
            self.unreported += 1
            held.queue.moves.append((move, held))
            self.cv.notify_all()

    def _report_loop(self, q: Queue) -> None:
        while True:
            with self.cv:
                while not q.moves:
                    if self.ended.is_set():
                        return
                    self.cv.wait(1.0)
                # More reports may come soon where other jobs run.
                others = len(self.held) > len(q.moves)
            if others and len(q.moves) < BATCH_UPDATES and not self.stopping.is_set():
                time.sleep(BATCH_WAIT)
            with self.cv:
                batch: List[Tuple[Move, Optional[Held]]] = []
                size, jobs = 0, set()
                # A job that came again may have two reports: a request has one of them.
                while q.moves and len(batch) < BATCH_UPDATES and size < BATCH_BYTES and q.moves[0][0].id not in jobs:
                    move, held = q.moves.popleft()
                    jobs.add(move.id)
                    if time.monotonic() < q.silent:
                        move.reply = None
                    size += 200 + 4 * len(move.reason) + 4 * len(move.detail) + (move.reply.size() if move.reply else 0)
                    batch.append((move, held))
            self._send(q, batch)
            with self.cv:
                self.unreported -= len(batch)
                for _, held in batch:
                    if held is not None:
                        self.held.pop((held.job.id, held.job.lease), None)
                self.cv.notify_all()

    def _send(self, q: Queue, batch: "List[Tuple[Move, Optional[Held]]]") -> None:
        """Report until there is an answer. A lease is renewed meanwhile; once it is lost, so is the report."""
        failures = 0
        moves = [move for move, _ in batch]
        while True:
            try:
                moved = self.client._run(self.client._core.move(q.channel, q.consumer, moves, self.about, tries=1))
                again = self._reported(q, moves, moved, failures > 0)
                if not again:
                    return
                batch = [(move, held) for move, held in batch if move in again]
                moves = again
                raise UnavailableError("some reports were not taken")
            except UnavailableError as error:
                pause = backoff(failures) if error.retry_after is None else error.retry_after
                failures += 1
                (log.warning if failures in (1, 10) else log.debug)("queue %s: %s", q.channel, error)
                now = time.monotonic()
                if self._report_by is not None and now + pause > self._report_by or self.ended.is_set():
                    log.error("queue %s: %d reports were not taken before the worker ended", q.channel, len(batch))
                    return
                if all(held is None or now >= held.lease_end for _, held in batch):
                    self.counts["lost"] += len(batch)
                    for move in moves:
                        self.known.refused(move.id)
                    log.error("queue %s: %d jobs could not be reported before their leases ended", q.channel, len(batch))
                    return
                pause = min(pause, max(0.05, max(held.lease_end for _, held in batch if held is not None) - now))
                (self.ended if self.aborted.is_set() else self.aborted).wait(min(pause, 1.0) if self.stopping.is_set() else pause)
            except (BrokerError, ValueError) as error:
                log.error("queue %s: %d reports were refused: %s", q.channel, len(batch), error)
                if isinstance(error, RefusedError):
                    self.fail(error)
                return

    def _reported(self, q: Queue, moves: Sequence[Move], moved: Sequence[Moved], repeated: bool) -> List[Move]:
        """Notes the answers to reports; returns those that are sent again."""
        again: List[Move] = []
        for move, answer in zip(moves, moved):
            if answer.code == "invalid_response" and move.reply is not None:  # the job is done all the same
                if time.monotonic() >= q.silent:
                    log.warning("queue %s keeps no results: set responses=store of its consumer", q.channel)
                q.silent, move.reply = time.monotonic() + SILENT, None
                again.append(move)
                continue
            if answer.status in (408, 429) or answer.status >= 500:
                again.append(move)
                continue
            (self.known.taken if answer.ok else self.known.refused)(move.id)
            if answer.ok or repeated and answer.code == "lease_lost" and move.state == "QUEUED":
                continue  # of a report that is repeated the first one may have counted
            if answer.code == "lease_lost":
                self.counts["lost"] += 1
                log.warning("queue %s: the lease of job %s was lost before its report", q.channel, move.id)
            else:
                log.error("queue %s: the report of job %s was refused: %s %s", q.channel, move.id, answer.status, answer.code)
        return again

    # Health

    def healthy(self) -> Tuple[bool, Dict[str, Any]]:
        """Whether each queue was asked within two waits, and what to show."""
        now = time.monotonic()
        late = [
            q.channel for q in self.queues if not q.idle and now - q.polled > 2 * max(self.wait, 5.0) + self.client._core.o.timeout
        ]
        ok = not late and self.error is None and not self.stopping.is_set()
        return ok, {
            "ok": ok,
            "worker": self.client.worker,
            "queues": [q.channel for q in self.queues],
            "late": late,
            "slots": self.pool.size,
            "in_flight": len(self.held),
            "stopping": self.stopping.is_set(),
            **self.counts,
        }


def _about(version: str, slots: int, tasks: Sequence[str]) -> str:
    """The parts of X-Broker-Worker after the name."""
    out = ""
    if version:
        out += f"; version={version[:64]}"
    out += f"; slots={slots}"
    fit = [t for t in tasks if t and not set(t) & set(",;|") and t.isascii() and t.isprintable()]
    if fit and len(fit) == len(tasks) <= MOST_TASKS and sum(map(len, fit)) < 4000:
        out += "; tasks=" + ",".join(fit)
    return out
