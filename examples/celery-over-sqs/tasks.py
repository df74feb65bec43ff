"""Celery, unchanged: the broker is Penstock, over its SQS door."""

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("tasks", broker=os.environ.get("CELERY_BROKER_URL", "sqs://any:any@127.0.0.1:8080"))
app.conf.update(
    task_default_queue="celery",
    task_ignore_result=True,  # an SQS client has nowhere to keep results
    task_acks_late=True,  # a killed worker loses nothing
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,  # SQS has no broadcast
    broker_transport_options={
        "region": "us-east-1",
        "visibility_timeout": int(os.environ.get("VISIBILITY_TIMEOUT", "60")),
        "wait_time_seconds": 10,
    },
)


def note(line):
    """Write what was done into the file OUT."""
    with Path(os.environ.get("OUT", "out.txt")).open("a") as f:
        f.write(line + "\n")


@app.task
def add(x, y):
    note(f"add {x + y}")


@app.task(bind=True, max_retries=2)
def flaky(self, name):
    """Fail twice."""
    if self.request.retries < 2:
        raise self.retry(countdown=1)
    note(f"flaky {name}")


@app.task
def slow(seconds):
    """Take that long, and say when it begins and ends."""
    note("slow begins")
    time.sleep(seconds)
    note("slow ends")
