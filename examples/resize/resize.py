"""Resize the pictures of a folder: resize.py FOLDER TARGET WIDTH..."""

import os
import sys

from tasks import thumbnail

source, target, widths = sys.argv[1], sys.argv[2], [int(w) for w in sys.argv[3:]]
os.makedirs(target, exist_ok=True)
jobs = []
for name in sorted(os.listdir(source)):
    for width in widths:
        small = os.path.join(target, "%s-%d.png" % (os.path.splitext(name)[0], width))
        jobs.append((name, thumbnail.delay(os.path.abspath(os.path.join(source, name)), os.path.abspath(small), width)))
for name, job in jobs:
    try:
        print(name, "%dx%d" % tuple(job.get(timeout=60)))
    except Exception as error:
        print(name, "failed:", error)
