"""The jobs that bench/peers compares clients with: one program for Celery and for Penstock in its form.

A worker imports it: python3 -m celery|penstock -A jobs worker. A producer is
    python3 jobs.py publish KIND COUNT MS | ask COUNT SECONDS
and prints what was acknowledged as JSON.
"""

import json
import os
import sys
import threading
import time

URL = os.environ["JOBS_BROKER"]
if os.environ["JOBS_CLIENT"] == "celery":
    from celery import Celery

    app = Celery("jobs", broker=URL, backend=URL)
    if os.environ.get("JOBS_ACKS") == "late":
        app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
else:
    from penstock import Celery

    app = Celery("jobs", broker=URL)
app.conf.task_default_queue = os.environ["JOBS_QUEUE"]
app.conf.broker_transport_options = {"visibility_timeout": int(os.environ["JOBS_LEASE"])}

DONE = os.open(os.environ["JOBS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
PUBLISHERS = 8


def done(kind, n):
    # One write of a line: it is in the file, whatever kills this process then.
    os.write(DONE, b"%s %d %d\n" % (kind.encode(), n, time.monotonic_ns()))


@app.task(ignore_result=True)
def work(kind, n, ms):
    if ms:
        time.sleep(ms / 1000)
    done(kind, n)


@app.task
def answer(n):
    done("ask", n)
    return n


def publish(kind, count, ms):
    acked, failed, numbers, lock = [], [], iter(range(count)), threading.Lock()

    def run():
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                return
            try:
                work.delay(kind, n, ms)
            except Exception as error:
                failed.append(str(error))
            else:
                acked.append(n)

    threads = [threading.Thread(target=run) for _ in range(PUBLISHERS)]
    work.delay("warm", 0, 0)  # connections, and with Penstock the queue, are made before the clock runs
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    return {"acked": acked, "failed": len(failed), "error": failed[0] if failed else "", "seconds": seconds}


def ask(count, seconds):
    acked, failed, latencies, end = [], [], [], time.monotonic() + seconds
    for n in range(-5, count):  # the first five only make connections
        if n > 0 and time.monotonic() > end:
            break
        begin = time.monotonic()
        try:
            answer.delay(n).get(timeout=10)
        except Exception as error:
            failed.append(repr(error))
            continue
        if n >= 0:
            acked.append(n)
            latencies.append((time.monotonic() - begin) * 1000)
    return {"acked": acked, "failed": len(failed), "error": failed[0] if failed else "", "latencies": latencies}


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    if command == "publish":
        print(json.dumps(publish(given[0], int(given[1]), int(given[2]))))
    else:
        print(json.dumps(ask(int(given[0]), float(given[1]))))
