"""Sends tasks to a worker in Node and prints their results: measure.py TEXT..."""

import sys

from penstock import Penstock

app = Penstock("texts")

for text in sys.argv[1:]:
    result = app.send_task("measure", args=[text], kwargs={"loud": True}, queue="texts")
    print(text, result.get(timeout=60))
