"""The driver of the Python client in the table of expectations against a hostile broker.

    driver.py worker|publish|batch|request OPTIONS-AS-JSON
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import Any, Dict

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from penstock import Client, Context, LeaseLost, Message, PenstockError, Reject, Stopped, Worker  # noqa: E402

logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
before = threading.active_count()
said = threading.Lock()
ended: "list[str]" = []  # the error of the worker


def say(**members: Any) -> None:
    with said:
        print(json.dumps(members), flush=True)


def told(job: Context, seconds: float) -> None:
    """Wait as long as the job is this worker's."""
    try:
        job.sleep(seconds)
    except LeaseLost:
        say(event="lost", id=job.message_id)
        raise
    except Stopped:
        say(event="stopped", id=job.message_id)
        raise
    say(event="done", id=job.message_id)


def ok(job: Context) -> None:
    say(event="done", id=job.message_id)


def sleep(job: Context) -> None:
    told(job, job.args[0] / 1000)


def hold(job: Context) -> None:
    told(job, 60)


def block(job: Context) -> None:
    time.sleep(job.args[0] / 1000)
    say(event="done", id=job.message_id)


def fail(job: Context) -> None:
    say(event="failed", id=job.message_id)
    raise RuntimeError("broken on purpose")


def reject(job: Context) -> None:
    say(event="failed", id=job.message_id)
    raise Reject("never again")


def started(handler: Any) -> Any:
    def run(job: Context) -> None:
        say(event="start", task=job.task, id=job.message_id, attempt=job.attempt)
        handler(job)

    return run


def work(client: Client, o: Dict[str, Any]) -> int:
    handlers = {f.__name__: started(f) for f in (ok, sleep, hold, block, fail, reject)}
    worker = Worker(
        client,
        o.get("queue", "jobs"),
        handlers,
        concurrency=o.get("concurrency", 4),
        lease=o.get("lease", 3),
        wait=o.get("wait", 1),
    )
    say(event="ready")
    code = worker.run()
    ended.append("" if worker.error is None else str(worker.error))
    return code


def problem_of(error: Any) -> Dict[str, Any]:
    if error is None:
        return {"error": "", "code": ""}
    return {"error": str(error), "code": getattr(error, "code", "")}


def publish(client: Client, o: Dict[str, Any]) -> int:
    for i in range(o.get("count", 10)):
        status, error = 0, None
        try:
            status = client.enqueue(o.get("queue", "jobs"), "ok", [i], message_id=f"m-{i}").status
        except PenstockError as e:
            error, status = e, getattr(e, "status", 0)
        say(event="published", id=f"m-{i}", status=status, **problem_of(error))
    return 0


def batch(client: Client, o: Dict[str, Any]) -> int:
    messages = []
    for i in range(o.get("count", 10)):
        job = {"task": "ok", "args": [i], "kwargs": {}, "meta": {}}
        messages.append(Message(job, message_id=f"m-{i}", task="ok"))
    try:
        for one in client.publish_many(o.get("queue", "jobs"), messages):
            say(event="published", id=one.message_id, status=one.status, **problem_of(one.error))
    except PenstockError as e:
        for message in messages:
            say(event="published", id=message.message_id, status=getattr(e, "status", 0), **problem_of(e))
    return 0


def request(client: Client, o: Dict[str, Any]) -> int:
    body, status, error = "", 0, None
    try:
        response = client.request(o.get("queue", "jobs"), "ask", message_id="m-0")
        body, status = response.text, 200 if response.received else 202
    except PenstockError as e:
        error, status = e, getattr(e, "status", 0)
    say(event="answer", body=body, status=status, **problem_of(error))
    return 0


def main() -> int:
    mode = {"worker": work, "publish": publish, "batch": batch, "request": request}[sys.argv[1]]
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    client = Client(timeout=options.get("timeout", 2), tries=options.get("tries", 5))
    code = mode(client, options)
    client.close()
    end = time.monotonic() + 1
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    say(event="end", error="".join(ended), left=threading.active_count() - before)
    return code


if __name__ == "__main__":
    sys.exit(main())
