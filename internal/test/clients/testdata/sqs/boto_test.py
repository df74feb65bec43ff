"""boto3 of Debian, which speaks the query protocol, unchanged, against the broker at SQS_ENDPOINT."""

import os
import unittest

import boto3
from botocore.exceptions import ClientError

ENDPOINT = os.environ["SQS_ENDPOINT"]


def client(key="any", secret="any"):
    return boto3.client("sqs", endpoint_url=ENDPOINT, region_name="eu-west-1", aws_access_key_id=key, aws_secret_access_key=secret)


SQS = client()


class Query(unittest.TestCase):
    def refused(self, code, call, **parameters):
        with self.assertRaises(ClientError) as caught:
            call(**parameters)
        self.assertEqual(caught.exception.response["Error"]["Code"], code, caught.exception)
        self.assertTrue(caught.exception.response["ResponseMetadata"]["RequestId"])

    def test_a_message_goes_through(self):
        url = SQS.create_queue(QueueName="query", Attributes={"VisibilityTimeout": "40"})["QueueUrl"]
        self.assertEqual(SQS.get_queue_url(QueueName="query")["QueueUrl"], url)
        self.assertIn(url, SQS.list_queues()["QueueUrls"])
        body = 'grüße <&> "\U0001f600"\n\t '
        attributes = {
            "n": {"DataType": "Number", "StringValue": "1"},
            "b": {"DataType": "Binary", "BinaryValue": b"\0\1\xff"},
            "s": {"DataType": "String", "StringValue": "<a&b>"},
        }
        sent = SQS.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)
        (m,) = SQS.receive_message(QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], WaitTimeSeconds=20)["Messages"]
        self.assertEqual((m["Body"], m["MessageId"], m["MessageAttributes"]), (body, sent["MessageId"], attributes))
        self.assertEqual(m["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"])
        self.assertEqual(m["Attributes"]["ApproximateReceiveCount"], "1")
        SQS.change_message_visibility(QueueUrl=url, ReceiptHandle=m["ReceiptHandle"], VisibilityTimeout=600)
        SQS.delete_message(QueueUrl=url, ReceiptHandle=m["ReceiptHandle"])
        self.assertNotIn("Messages", SQS.receive_message(QueueUrl=url))

    def test_batches_answer_each_entry(self):
        url = SQS.create_queue(QueueName="query-batch")["QueueUrl"]
        r = SQS.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "1"}, {"Id": "b", "MessageBody": "\1"}])
        self.assertEqual([s["Id"] for s in r["Successful"]], ["a"])
        self.assertEqual([(f["Id"], f["SenderFault"], f["Code"]) for f in r["Failed"]], [("b", True, "InvalidMessageContents")])
        (m,) = SQS.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10)["Messages"]
        handle = m["ReceiptHandle"]
        r = SQS.change_message_visibility_batch(QueueUrl=url, Entries=[{"Id": "v", "ReceiptHandle": handle, "VisibilityTimeout": 600}])
        self.assertEqual(r["Successful"], [{"Id": "v"}])
        r = SQS.delete_message_batch(QueueUrl=url, Entries=[{"Id": "d", "ReceiptHandle": handle}, {"Id": "x", "ReceiptHandle": "no"}])
        self.assertEqual((r["Successful"], r["Failed"][0]["Code"]), ([{"Id": "d"}], "ReceiptHandleIsInvalid"))

    def test_queues_have_attributes(self):
        url = SQS.create_queue(QueueName="query-attributes")["QueueUrl"]
        SQS.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "61", "RedrivePolicy": '{"maxReceiveCount":3}'})
        got = SQS.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        self.assertEqual(got["VisibilityTimeout"], "61")
        self.assertIn('"maxReceiveCount":3', got["RedrivePolicy"])

    def test_errors_are_those_of_sqs(self):
        self.refused("AWS.SimpleQueueService.NonExistentQueue", SQS.get_queue_url, QueueName="nowhere")
        with self.assertRaises(SQS.exceptions.QueueDoesNotExist):
            SQS.get_queue_url(QueueName="nowhere")
        url = SQS.create_queue(QueueName="query-errors")["QueueUrl"]
        self.refused("AWS.SimpleQueueService.UnsupportedOperation", SQS.tag_queue, QueueUrl=url, Tags={"a": "b"})
        self.refused("InvalidParameterValue", SQS.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
        self.refused("AWS.SimpleQueueService.EmptyBatchRequest", SQS.send_message_batch, QueueUrl=url, Entries=[])
        self.refused("AWS.SimpleQueueService.UnsupportedOperation", SQS.purge_queue, QueueUrl=url)


if __name__ == "__main__":
    unittest.main()
