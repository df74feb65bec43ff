"""Asks what things cost: ask.py ITEM..."""

import os
import sys

from penstock import Client

with Client(os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080")) as client:
    for item in sys.argv[1:]:
        response = client.request("prices", {"item": item}, wait=30)
        print(item, response.text if response.received else "no answer yet")
