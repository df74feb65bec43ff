"""Verified push with the real frameworks of the system, and a real broker."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
import time
import unittest
from typing import Any, Callable, Dict, List
from wsgiref.simple_server import WSGIRequestHandler, make_server

import penstock
from penstock import push

from .support import BrokerCase, eventually, fresh

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
OLD = "whsec_" + base64.b64encode(b"abcdefghijklmnopqrstuvwx").decode()


def signed(body: bytes, secret: str = SECRET, at: float = 0, id: str = "m-1", **more: str) -> Dict[str, str]:
    stamp = int(at or time.time())
    return {
        "Content-Type": "application/json",
        "Webhook-Id": id,
        "Webhook-Timestamp": str(stamp),
        "Webhook-Signature": push.sign(secret, id, stamp, body),
        "X-Broker-Channel-ID": "orders",
        "X-Broker-Message-ID": id,
        "X-Broker-Attempt": "2",
        **more,
    }


class ReceiverTest(unittest.TestCase):
    def setUp(self) -> None:
        self.receiver = push.Receiver([SECRET, OLD])
        self.seen: List[push.Message] = []
        self.raises: Any = None

        @self.receiver.on("orders")
        def order(message: push.Message) -> None:
            self.seen.append(message)
            if self.raises is not None:
                raise self.raises

    def test_a_delivery_that_is_signed_is_given_to_its_function(self) -> None:
        self.assertEqual(self.receiver.receive(signed(b'{"a":1}', **{"X-Kind": "b"}), b'{"a":1}').status, 204)
        (message,) = self.seen
        self.assertEqual((message.payload, message.json(), message.message_id), (b'{"a":1}', {"a": 1}, "m-1"))
        self.assertEqual((message.attempt, message.headers["x-kind"], message.channel), (2, "b", "orders"))
        self.assertEqual(self.receiver.receive(signed(b"x", OLD, id="m-2"), b"x").status, 204)

    def test_another_body_secret_time_or_id_is_refused(self) -> None:
        good, other = signed(b"x"), "whsec_" + base64.b64encode(b"z" * 24).decode()
        for headers in (
            signed(b"y"),
            signed(b"x", other),
            signed(b"x", at=time.time() - 301),
            signed(b"x", at=time.time() + 301),
            {**good, "Webhook-Id": "m-9"},
            {**good, "Webhook-Timestamp": good["Webhook-Timestamp"] + "0"},
            {**good, "Webhook-Timestamp": "²"},
            {**good, "Webhook-Signature": "v1,"},
            {**good, "Webhook-Signature": good["Webhook-Signature"].replace("v1,", "v2,")},
            {k: v for k, v in good.items() if k != "Webhook-Signature"},
            {},
        ):
            with self.subTest(headers):
                self.assertEqual(self.receiver.receive(headers, b"x").status, 401)
        self.assertEqual(self.seen, [])
        several = f"v2,abc v1,AAAA {good['Webhook-Signature']}"
        self.assertEqual(self.receiver.receive({**good, "Webhook-Signature": several}, b"x").status, 204)

    def test_a_repeat_is_answered_and_not_done_again_unless_it_failed(self) -> None:
        self.raises = ValueError("no")
        self.assertEqual(self.receiver.receive(signed(b"x"), b"x").status, 500)
        self.raises = None
        self.assertEqual(self.receiver.receive(signed(b"x"), b"x").status, 204)
        self.assertEqual(self.receiver.receive(signed(b"x"), b"x").status, 200)
        self.assertEqual(len(self.seen), 2)

    def test_a_repeat_beside_the_first_one_is_no_success(self) -> None:
        inside, go = threading.Event(), threading.Event()

        @self.receiver.on("slow")
        def slow(_: push.Message) -> None:
            inside.set()
            go.wait(60)

        headers = signed(b"x", **{"X-Broker-Channel-ID": "slow"})
        thread = threading.Thread(target=self.receiver.receive, args=(headers, b"x"))
        thread.start()
        inside.wait(60)
        self.assertEqual(self.receiver.receive(headers, b"x").status, 409)
        go.set()
        thread.join()
        self.assertEqual(self.receiver.receive(headers, b"x").status, 200)

    def test_exceptions_say_gone_and_later(self) -> None:
        self.raises = penstock.Gone()
        self.assertEqual(self.receiver.receive(signed(b"x"), b"x").status, 410)
        self.raises = penstock.TooManyRequests(retry_after=6.5)
        answer = self.receiver.receive(signed(b"x"), b"x")
        self.assertEqual((answer.status, answer.headers), (429, {"Retry-After": "7"}))

    def test_a_channel_without_a_function_is_404_and_a_secret_is_needed(self) -> None:
        self.assertEqual(self.receiver.receive(signed(b"x", **{"X-Broker-Channel-ID": "other"}), b"x").status, 404)
        for secret in ("", "plain", "whsec_", "whsec_!!!", []):
            with self.assertRaises(penstock.exceptions.ConfigurationError):
                push.Receiver(secret)

    def test_the_memory_of_messages_is_bounded(self) -> None:
        store = push.MemoryStore(most=3)
        for i in range(10):
            self.assertEqual(store.begin(str(i)), "new")
            store.done(str(i))
        self.assertEqual((store.begin("9"), store.begin("0")), ("done", "new"))

    def test_a_coroutine_is_awaited(self) -> None:
        @self.receiver.on("later")
        async def later(message: push.Message) -> Dict[str, str]:
            await asyncio.sleep(0)
            return {"got": message.text}

        headers = signed(b"x", **{"X-Broker-Channel-ID": "later"})
        answer = asyncio.run(self.receiver.areceive(headers, b"x"))
        self.assertEqual((answer.status, json.loads(answer.body)), (200, {"got": "x"}))
        self.assertEqual(self.receiver.receive(signed(b"x", id="m-5", **{"X-Broker-Channel-ID": "later"}), b"x").status, 200)


class FrameworkCase(BrokerCase):
    """A consumer in a framework, called by the broker."""

    def serve(self, application: Callable[..., Any]) -> str:
        class Quiet(WSGIRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

        server = make_server("127.0.0.1", 0, application, handler_class=Quiet)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def deliver(self, consumer: push.Receiver, url: str) -> None:
        channel, seen = fresh("push"), []  # type: ignore[var-annotated]

        @consumer.on(channel)
        def take(message: push.Message) -> Any:
            seen.append((message.payload, message.attempt))
            if message.attempt == 1:
                raise ValueError("not at first")
            return {"took": message.text}

        self.client.manage.put_channel(channel)
        self.client.manage.put_consumer(
            channel, "c", callback_url=url, signing_secret=SECRET, backoff="constant:1s", responses="store"
        )
        body = b"a=1&b=\xff"
        sent = self.client.publish(channel, body, content_type="application/x-www-form-urlencoded")
        eventually(lambda: self.job_state(channel, sent.message_id).get("Status") == "DELIVERED", "the delivery")
        self.assertEqual(seen, [(body, 1), (body, 2)])
        (response,) = self.client.responses(channel, sent.message_id)
        self.assertEqual(response.json(), {"took": body.decode("utf-8", "replace")})


class FlaskTest(FrameworkCase):
    def test_flask(self) -> None:
        from flask import Flask

        from penstock.flask import Consumer

        app = Flask("test")
        consumer = Consumer(app, secret=SECRET)
        self.assertEqual(app.test_client().post("/penstock", data=b"x").status_code, 401)
        self.assertEqual(app.test_client().get("/penstock").status_code, 405)
        self.deliver(consumer, self.serve(app) + "/penstock")


class DjangoTest(FrameworkCase):
    def test_django(self) -> None:
        import django
        from django.conf import settings

        if not settings.configured:
            settings.configure(
                ROOT_URLCONF=__name__,
                ALLOWED_HOSTS=["*"],
                SECRET_KEY="test",
                MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"],
                DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            )
            django.setup()
        from django.core.wsgi import get_wsgi_application
        from django.db import transaction
        from django.urls import include, path

        from penstock.django import Consumer

        consumer = Consumer(secret=SECRET)
        globals()["urlpatterns"] = [path("hook/", include(consumer.urls))]
        self.deliver(consumer, self.serve(get_wsgi_application()) + "/hook/")

        q, app = fresh(), penstock.Penstock("django")
        self.addCleanup(app.close)
        app.conf.task_default_queue = q

        @app.task
        def work(n: int) -> None:
            pass

        with transaction.atomic():
            work.delay_on_commit(1)
            self.assertEqual(self.client.claim(q), [])
        self.assertEqual([job.json()["args"] for job in self.client.claim(q, wait=20)], [[1]])
        try:
            with transaction.atomic():
                work.delay_on_commit(2)
                raise ValueError("rolled back")
        except ValueError:
            pass
        self.assertEqual(self.client.claim(q), [])


class FastAPITest(unittest.TestCase):
    def test_fastapi(self) -> None:
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from penstock.fastapi import Consumer

        app = FastAPI()
        consumer = Consumer(app, secret=SECRET)
        seen: List[Any] = []

        @consumer.on("orders")
        async def order(message: push.Message) -> None:
            seen.append(message.json())
            if len(seen) == 1:
                raise penstock.TooManyRequests(retry_after=7)

        @consumer.on("plain")
        def plain(message: push.Message) -> str:
            return message.text

        client = TestClient(app)
        post = lambda headers, body: client.post("/penstock", content=body, headers=headers)  # noqa: E731
        answer = post(signed(b'{"a":1}'), b'{"a":1}')
        self.assertEqual((answer.status_code, answer.headers["retry-after"]), (429, "7"))
        self.assertEqual(post(signed(b'{"a":1}'), b'{"a":1}').status_code, 204)
        self.assertEqual(post(signed(b'{"a":1}'), b'{"a":1}').status_code, 200)
        self.assertEqual(post(signed(b'{"a":1}'), b'{"a":2}').status_code, 401)
        self.assertEqual(seen, [{"a": 1}, {"a": 1}])
        self.assertEqual(post(signed(b"hi", id="m-3", **{"X-Broker-Channel-ID": "plain"}), b"hi").text, "hi")
        self.assertNotIn("/penstock", app.openapi()["paths"])


os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
urlpatterns: List[Any] = []

if __name__ == "__main__":
    unittest.main()
