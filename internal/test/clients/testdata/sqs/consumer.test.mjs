// sqs-consumer, unchanged, against the broker at SQS_ENDPOINT.
import assert from 'node:assert/strict'
import test from 'node:test'
import { CreateQueueCommand, GetQueueAttributesCommand, SendMessageBatchCommand, SQSClient } from '@aws-sdk/client-sqs'
import { Consumer } from 'sqs-consumer'

const endpoint = process.env.SQS_ENDPOINT
const sqs = new SQSClient({ endpoint, region: 'eu-west-1', credentials: { accessKeyId: 'any', secretAccessKey: 'any' } })

async function consume(name, options, bodies) {
  const { QueueUrl: queueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: name }))
  const Entries = bodies.map((MessageBody, i) => ({ Id: String(i), MessageBody }))
  assert.equal((await sqs.send(new SendMessageBatchCommand({ QueueUrl: queueUrl, Entries }))).Successful.length, bodies.length)
  const consumer = Consumer.create({ queueUrl, sqs, waitTimeSeconds: 1, ...options })
  const errors = []
  consumer.on('error', (e) => errors.push(e))
  return { consumer, errors, queueUrl }
}

async function empty(QueueUrl) {
  const names = ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible']
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: names }))
  return names.every((n) => Attributes[n] === '0')
}

const ended = (consumer) => new Promise((resolve) => { consumer.once('stopped', resolve); consumer.stop() })

test('each message is handled once and deleted', async () => {
  const bodies = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
  const seen = []
  let all
  const done = new Promise((resolve) => { all = resolve })
  const { consumer, errors, queueUrl } = await consume('handled', {
    handleMessage: async (m) => { seen.push(m.Body); if (seen.length === bodies.length) all(); return m },
    batchSize: 3,
  }, bodies)
  consumer.start()
  await done
  await ended(consumer)
  while (!await empty(queueUrl));
  assert.deepEqual(seen.sort(), bodies)
  assert.deepEqual(errors, [])
})

test('a message whose handler failed comes again at once', async () => {
  const counts = []
  let done
  const over = new Promise((resolve) => { done = resolve })
  const { consumer, queueUrl } = await consume('fails', {
    terminateVisibilityTimeout: true, attributeNames: ['ApproximateReceiveCount'],
    handleMessage: async (m) => {
      counts.push(m.Attributes.ApproximateReceiveCount)
      if (counts.length < 3) throw new Error('not now')
      done()
      return m
    },
  }, ['poison'])
  consumer.on('processing_error', () => {})
  consumer.start()
  await over
  await ended(consumer)
  while (!await empty(queueUrl));
  assert.deepEqual(counts, ['1', '2', '3'])
})

test('a heartbeat keeps a message', async () => {
  let received = 0
  let done
  const over = new Promise((resolve) => { done = resolve })
  const { consumer, queueUrl } = await consume('slow', {
    visibilityTimeout: 10, heartbeatInterval: 1,
    handleMessage: async (m) => { received++; await new Promise((r) => setTimeout(r, 2500)); done(); return m },
  }, ['slow'])
  consumer.start()
  await over
  await ended(consumer)
  while (!await empty(queueUrl));
  assert.equal(received, 1)
})
