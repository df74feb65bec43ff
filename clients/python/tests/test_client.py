"""Client and AsyncClient against a real broker."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone

from penstock import AsyncClient, Client, LeaseLost, Message, RefusedError, UnavailableError
from penstock._manage import AsyncManage, Manage
from penstock._wire import Reader, WireError
from penstock.exceptions import ConfigurationError

from .support import BrokerCase, eventually, fresh


class PublishTest(BrokerCase):
    def test_a_message_that_is_published_is_claimed_as_it_was(self) -> None:
        q = fresh()
        self.client.enqueue(q, "noop")
        self.client.ack(self.client.claim(q, wait=20))
        sent = self.client.publish(
            q, b"\xff\x00", content_type="application/x-bytes", priority=7, headers={"X-Kind": "blü"}, ordering_key="k", task="t"
        )
        (job,) = self.client.claim(q, wait=20)
        self.assertEqual((job.payload, job.content_type, job.priority), (b"\xff\x00", "application/x-bytes", 7))
        self.assertEqual((job.message_id, job.attempt, job.headers["X-Kind"]), (sent.message_id, 1, "blü"))
        self.assertEqual(self.client.ack(job)[0].status, 202)

    def test_a_repeat_under_an_id_is_stored_once_and_another_message_is_refused(self) -> None:
        q = fresh()
        first, second = (self.client.publish(q, {"a": 1}, message_id="m") for _ in range(2))
        self.assertFalse(first.duplicate)
        self.assertTrue(second.duplicate)
        with self.assertRaises(RefusedError) as raised:
            self.client.publish(q, {"a": 2}, message_id="m")
        self.assertEqual(raised.exception.code, "message_id_conflict")

    def test_a_bad_message_among_many_fails_no_other(self) -> None:
        q = fresh()
        done = self.client.publish_many(q, ["one", Message("two", priority=5000), {"payload": b"\xff", "message_id": "three"}])
        self.assertEqual([one.ok for one in done], [True, False, True])
        self.assertEqual(done[1].error.code if done[1].error else "", "invalid_priority")
        self.assertEqual(done[2].message_id, "three")

    def test_thousands_of_messages_go_in_bounded_batches(self) -> None:
        q = fresh()
        done = self.client.publish_many(q, [str(i) for i in range(2500)])
        self.assertEqual(len({one.message_id for one in done if one.ok}), 2500)

    def test_a_bulk_is_published(self) -> None:
        q = fresh()
        self.client.enqueue(q, "noop")
        bulk = self.client.bulk(q, ["a", {"payload": "b"}])
        eventually(lambda: self.client.manage.bulk(q, bulk)["State"] == "DONE", "the bulk")
        jobs = []
        while len(jobs) < 3:  # a message is stored before its job is there
            some = self.client.claim(q, limit=10, wait=20)
            self.assertTrue(some, "the next jobs")
            jobs += some
        self.assertEqual(len(jobs), 3)

    def test_a_schedule_is_seen_changed_and_deleted(self) -> None:
        q, at = fresh(), datetime.now(timezone.utc) + timedelta(hours=1)
        self.client.schedule(q, "later", at=at, message_id="s")
        shown = self.client.scheduled(q, "s") or {}
        self.assertEqual(shown["payload"], "later")
        changed = self.client.reschedule(q, "s", delay=timedelta(hours=3)) or {}
        self.assertGreater(changed["dispatchSchedule"], shown["dispatchSchedule"])
        self.assertTrue(self.client.unschedule(q, "s"))
        self.assertFalse(self.client.unschedule(q, "s"))
        self.assertIsNone(self.client.scheduled(q, "s"))

    def test_an_option_that_does_not_exist_is_named(self) -> None:
        with self.assertRaisesRegex(ConfigurationError, "dealy"):
            self.client.schedule("q", "x", delay=1, dealy=2)

    def test_a_request_gets_the_response_of_a_worker(self) -> None:
        q = fresh()
        self.client.enqueue(q, "noop")
        self.client.ack(self.client.claim(q, wait=20))
        self.client.manage.put_consumer(q, q, responses="store")

        def answer() -> None:
            with Client() as worker:
                (job,) = worker.claim(q, wait=20)
                worker.respond(job, {"you said": job.text})
                worker.ack(job)

        thread = threading.Thread(target=answer)
        thread.start()
        response = self.client.request(q, "hello", wait=30)
        thread.join()
        self.assertTrue(response.received)
        self.assertEqual(response.json(), {"you said": "hello"})
        (again,) = self.client.responses(q, response.message_id)
        self.assertEqual(again.json(), {"you said": "hello"})


class ClaimTest(BrokerCase):
    def test_a_lost_lease_is_an_error_of_its_own(self) -> None:
        q = fresh()
        self.client.enqueue(q, "noop")
        (job,) = self.client.claim(q, wait=20)
        self.client.nack(job, failed=False)
        with self.assertRaises(LeaseLost):
            self.client.ack(job)

    def test_a_job_that_failed_comes_again_with_its_reason(self) -> None:
        q = fresh()
        sent = self.client.enqueue(q, "noop")
        self.client.nack(self.client.claim(q, wait=20), delay=1, reason="card declined")
        self.assertEqual(self.job_state(q, sent.message_id)["Reason"], "card declined")
        (job,) = self.client.claim(q, wait=20)
        self.assertEqual(job.attempt, 2)
        self.client.reject(job, reason="never")
        self.assertEqual([dead["Reason"] for dead in self.client.manage.dead_letters(q)], ["never"])

    def test_a_lease_is_extended(self) -> None:
        q = fresh()
        self.client.enqueue(q, "noop")
        (job,) = self.client.claim(q, wait=20, lease=5)
        self.client.extend(job, lease=60)
        self.assertEqual(self.client.claim(q, wait=7), [])
        self.client.ack(job)


class TokensTest(BrokerCase):
    def test_two_clients_get_the_same_tokens(self) -> None:
        q = fresh()
        with Client() as other:
            self.client.enqueue(q, "noop")
            self.assertEqual(len(other.claim(q, wait=20)), 1)

    def test_a_push_consumer_is_no_queue(self) -> None:
        q = fresh()
        self.client.manage.put_channel(q)
        self.client.manage.put_consumer(q, q, callback_url="http://127.0.0.1:9/hook")
        with self.assertRaisesRegex(RefusedError, "push consumer"):
            self.client.claim(q)

    def test_a_changed_token_is_asked_anew(self) -> None:
        q = fresh()
        self.client.publish(q, "a")
        with Client() as other:
            other.manage.put_channel(q, token="another")
        self.assertTrue(self.client.publish(q, "b").ok)

    def test_tokens_are_in_no_text(self) -> None:
        client = Client(token="very-secret", admin_token="more-secret")
        self.addCleanup(client.close)
        self.assertNotIn("secret", repr(client))
        with self.assertRaises(Exception) as raised:
            client.publish(fresh(), "x")
        self.assertNotIn("secret", str(raised.exception))

    def test_a_token_may_be_in_a_file(self) -> None:
        path = os.path.join(os.path.dirname(__file__), f"token-{os.getpid()}")
        self.addCleanup(os.remove, path)
        with open(path, "w", encoding="utf-8") as file:
            file.write("from-a-file\n")
        os.environ["PENSTOCK_TOKEN_FILE"] = path
        self.addCleanup(os.environ.pop, "PENSTOCK_TOKEN_FILE")
        self.assertEqual(Client()._core.o.producer_token, "from-a-file")


class AddressTest(unittest.TestCase):
    def test_a_url_that_cannot_be_one_is_refused_without_its_password(self) -> None:
        for url in ("amqp://guest:pw@host//", "http://user:pw@host", "localhost:8080", "http://host:port", "http://host/?a=b"):
            with self.subTest(url), self.assertRaises(ConfigurationError) as raised:
                Client(url)
            self.assertNotIn("pw", str(raised.exception))

    def test_a_path_is_kept_as_a_prefix(self) -> None:
        self.assertEqual(Client("http://host:8080/broker/")._core.call("GET", "/x").target, "/broker/x")


class UnreachableTest(unittest.TestCase):
    def test_a_broker_that_is_away_is_an_error_after_the_tries(self) -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            client = Client(f"http://127.0.0.1:{held.getsockname()[1]}", tries=2, token="t")
            with self.assertRaisesRegex(UnavailableError, "after 2 tries"):
                client.publish("q", "x")

    def test_an_answer_that_drips_ends_at_the_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def drip() -> None:
                try:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    for _ in range(1000):
                        connection.sendall(b"x")
                        time.sleep(0.05)
                except OSError:
                    pass

            threading.Thread(target=drip, daemon=True).start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            with Client(url, tries=1, timeout=0.5, token="t") as client, self.assertRaisesRegex(UnavailableError, "within 0.5 s"):
                client.publish("q", "x")


class AsyncTest(BrokerCase):
    def test_the_async_client_does_the_same(self) -> None:
        q = fresh()

        async def use() -> None:
            async with AsyncClient() as client:
                await client.enqueue(q, "noop", [1], meta={"a": 1})
                await asyncio.gather(*(client.publish(q, str(i)) for i in range(20)))
                self.assertTrue(all(one.ok for one in await client.publish_many(q, ["x", "y"])))
                jobs = []
                while len(jobs) < 23:  # a message is stored before its job is there
                    some = await client.claim(q, limit=30, wait=20)
                    self.assertTrue(some, "the next jobs")
                    jobs += some
                self.assertEqual(len(jobs), 23)
                self.assertEqual({moved.status for moved in await client.ack(jobs[:20])}, {202})
                await client.nack(jobs[20], failed=False, delay=60)
                await client.reject(jobs[21], reason="no")
                await client.extend(jobs[22])
                await client.schedule(q, "later", delay=3600, message_id="s")
                self.assertTrue(await client.unschedule(q, "s"))
                shown = await client.manage("GET", f"/channel/{q}")
                self.assertEqual(shown["ID"], q)
                self.assertEqual((await client.manage.put_consumer(q, q, max_retries=3))["Policy"]["MaxRetries"], "3")
                self.assertIn(q, await client.manage.consumers(q))
                self.assertEqual([dead["Reason"] for dead in await client.manage.dead_letters(q)], ["no"])
                self.assertEqual((await client.manage.pause(q, q))["State"], "PAUSED")
                self.assertEqual((await client.manage.resume(q, q))["State"], "ACTIVE")

        asyncio.run(use())

    def test_the_async_client_manages_with_the_same_methods(self) -> None:
        def named(of: type) -> "dict[str, object]":
            return {name: inspect.signature(f) for name, f in vars(of).items() if name != "__init__" and callable(f)}

        self.assertEqual(named(AsyncManage), named(Manage))
        self.assertIn("dead_letters", named(Manage))


class ReaderTest(unittest.TestCase):
    def read(self, *parts: bytes) -> "object":
        reader = Reader(most=100)
        for part in (*parts, b""):
            answer = reader.feed(part)
            if answer is not None:
                return answer.status, answer.body
        return None

    def test_answers_are_read_in_whatever_pieces_they_come(self) -> None:
        for text in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        ):
            with self.subTest(text):
                self.assertEqual(self.read(text), (200, b"hello"))
                self.assertEqual(self.read(*(text[i : i + 1] for i in range(len(text)))), (200, b"hello"))

    def test_what_is_no_answer_is_an_error(self) -> None:
        for text in (
            b"",
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n",
        ):
            with self.subTest(text), self.assertRaises(WireError):
                self.read(text)


if __name__ == "__main__":
    unittest.main()
