"""Answers what a thing costs: a worker whose answers are carried back to whoever asked."""

import json
import os

from penstock import Client

PRICES = {"lamp": 20, "chair": 45}


def main():
    with Client(os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080")) as client:
        client.manage.put_channel("prices")
        # The broker keeps the responses of this consumer, and gives them to the request that waits.
        client.manage.put_consumer("prices", "prices", type="pull", responses="store")
        while True:
            for job in client.claim("prices", limit=10, wait=20):
                item = json.loads(job.payload)["item"]
                answer = {"item": item, "price": PRICES[item]} if item in PRICES else {"item": item, "unknown": True}
                client.respond(job, answer)
                client.ack(job)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
