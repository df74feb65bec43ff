// @aws-sdk/client-sqs, unchanged but for its endpoint, against the broker at SQS_ENDPOINT.
import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import test from 'node:test'
import {
  ChangeMessageVisibilityBatchCommand, ChangeMessageVisibilityCommand, CreateQueueCommand, DeleteMessageBatchCommand,
  DeleteMessageCommand, DeleteQueueCommand, GetQueueAttributesCommand, GetQueueUrlCommand, ListQueuesCommand, ListQueueTagsCommand,
  PurgeQueueCommand, ReceiveMessageCommand, SendMessageBatchCommand, SendMessageCommand, SetQueueAttributesCommand, SQSClient,
} from '@aws-sdk/client-sqs'

const endpoint = process.env.SQS_ENDPOINT
const client = new SQSClient({ endpoint, region: 'eu-west-1', maxAttempts: 1, credentials: { accessKeyId: 'any', secretAccessKey: 'any' } })
const send = (command) => client.send(command)
const md5 = (text) => createHash('md5').update(text).digest('hex')

async function newQueue(name, Attributes) {
  const { QueueUrl } = await send(new CreateQueueCommand({ QueueName: name, Attributes }))
  return QueueUrl
}

const receive = async (QueueUrl, more = {}) =>
  (await send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20, ...more }))).Messages ?? []

async function refused(command, name) {
  await assert.rejects(send(command), (e) => {
    assert.equal(e.name, name, `${e.name}: ${e.message}`)
    assert.ok(e.$metadata.requestId)
    return true
  })
}

test('a queue is made, found, listed and named by its URL', async () => {
  const url = await newQueue('made')
  assert.equal(url, endpoint + '/sqs/made/made')
  assert.equal(await newQueue('made'), url)
  assert.equal((await send(new GetQueueUrlCommand({ QueueName: 'made' }))).QueueUrl, url)
  const { QueueUrls } = await send(new ListQueuesCommand({ QueueNamePrefix: 'mad' }))
  assert.deepEqual(QueueUrls, [url])
  await refused(new GetQueueUrlCommand({ QueueName: 'nowhere' }), 'QueueDoesNotExist')
  await refused(new SendMessageCommand({ QueueUrl: endpoint + '/sqs/no/where', MessageBody: 'x' }), 'QueueDoesNotExist')
  await refused(new CreateQueueCommand({ QueueName: 'no dots.here' }), 'InvalidParameterValue')
})

test('lists come in pages', async () => {
  const names = ['page-1', 'page-2', 'page-3']
  for (const name of names) await newQueue(name)
  const found = []
  let NextToken
  do {
    const page = await send(new ListQueuesCommand({ QueueNamePrefix: 'page-', MaxResults: 2, NextToken }))
    found.push(...page.QueueUrls)
    NextToken = page.NextToken
  } while (NextToken)
  assert.deepEqual(found, names.map((n) => `${endpoint}/sqs/${n}/${n}`))
})

test('a message is sent with attributes, received once and deleted', async () => {
  const QueueUrl = await newQueue('plain')
  const body = 'grüße \u{1f600} <&> "quoted"\n'
  const MessageAttributes = {
    kind: { DataType: 'String', StringValue: 'express' },
    count: { DataType: 'Number', StringValue: '42.5' },
    raw: { DataType: 'Binary', BinaryValue: Uint8Array.from([0, 1, 255]) },
    typed: { DataType: 'String.json', StringValue: '{"a":1}' },
    host: { DataType: 'String', StringValue: 'lines\nof text ' },
  }
  const sent = await send(new SendMessageCommand({ QueueUrl, MessageBody: body, MessageAttributes }))
  assert.equal(sent.MD5OfMessageBody, md5(body))
  const [m, ...none] = await receive(QueueUrl, { MessageAttributeNames: ['All'], MessageSystemAttributeNames: ['All'], MaxNumberOfMessages: 10 })
  assert.deepEqual(none, [])
  assert.equal(m.Body, body)
  assert.equal(m.MD5OfBody, md5(body))
  assert.equal(m.MessageId, sent.MessageId)
  assert.deepEqual(m.MessageAttributes, MessageAttributes)
  assert.equal(m.MD5OfMessageAttributes, sent.MD5OfMessageAttributes)
  assert.equal(m.Attributes.ApproximateReceiveCount, '1')
  assert.ok(Math.abs(Number(m.Attributes.SentTimestamp) - Date.now()) < 3_600_000)
  await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
  await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
})

test('attributes come by name and by prefix', async () => {
  const QueueUrl = await newQueue('some')
  const s = (StringValue) => ({ DataType: 'String', StringValue })
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'x', MessageAttributes: { 'a.b': s('1'), 'a.c': s('2'), d: s('3'), e: s('4') } }))
  const [m] = await receive(QueueUrl, { MessageAttributeNames: ['a.*', 'd'], AttributeNames: ['SentTimestamp'] })
  assert.deepEqual(Object.keys(m.MessageAttributes).sort(), ['a.b', 'a.c', 'd'])
  assert.deepEqual(Object.keys(m.Attributes), ['SentTimestamp'])
})

test('a batch answers each entry', async () => {
  const QueueUrl = await newQueue('batch')
  const entries = Array.from({ length: 10 }, (_, i) => ({ Id: 'e' + i, MessageBody: 'm' + i }))
  entries[3].MessageBody = 'bad \u0000'
  entries[4].DelaySeconds = 901
  const r = await send(new SendMessageBatchCommand({ QueueUrl, Entries: entries }))
  assert.deepEqual(r.Successful.map((s) => s.Id), ['e0', 'e1', 'e2', 'e5', 'e6', 'e7', 'e8', 'e9'])
  assert.deepEqual(r.Failed.map((f) => [f.Id, f.SenderFault, f.Code]), [['e3', true, 'InvalidMessageContents'], ['e4', true, 'InvalidParameterValue']])
  const got = []
  while (got.length < 8) got.push(...await receive(QueueUrl, { MaxNumberOfMessages: 10, VisibilityTimeout: 600 }))
  assert.deepEqual(got.map((m) => m.Body).sort(), ['m0', 'm1', 'm2', 'm5', 'm6', 'm7', 'm8', 'm9'])
  const changed = await send(new ChangeMessageVisibilityBatchCommand({
    QueueUrl, Entries: [{ Id: 'a', ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 900 }, { Id: 'b', ReceiptHandle: 'nonsense', VisibilityTimeout: 1 }],
  }))
  assert.deepEqual(changed.Successful.map((e) => e.Id), ['a'])
  assert.deepEqual(changed.Failed.map((f) => f.Code), ['ReceiptHandleIsInvalid'])
  const deleted = await send(new DeleteMessageBatchCommand({ QueueUrl, Entries: got.map((m, i) => ({ Id: 'd' + i, ReceiptHandle: m.ReceiptHandle })) }))
  assert.equal(deleted.Successful.length, 8)
  assert.equal(deleted.Failed, undefined)
  await refused(new SendMessageBatchCommand({ QueueUrl, Entries: [] }), 'EmptyBatchRequest')
  await refused(new SendMessageBatchCommand({ QueueUrl, Entries: Array.from({ length: 11 }, (_, i) => ({ Id: 'e' + i, MessageBody: 'm' })) }), 'TooManyEntriesInBatchRequest')
  await refused(new DeleteMessageBatchCommand({ QueueUrl, Entries: [{ Id: 'a', ReceiptHandle: 'x' }, { Id: 'a', ReceiptHandle: 'y' }] }), 'BatchEntryIdsNotDistinct')
  await refused(new DeleteMessageBatchCommand({ QueueUrl, Entries: [{ Id: 'a b', ReceiptHandle: 'x' }] }), 'InvalidBatchEntryId')
  await refused(new SendMessageBatchCommand({ QueueUrl, Entries: [{ Id: 'a', MessageBody: 'x'.repeat(600_000) }, { Id: 'b', MessageBody: 'x'.repeat(600_000) }] }), 'BatchRequestTooLong')
})

test('a message comes again after its visibility timeout, and each receive counts', async () => {
  const QueueUrl = await newQueue('again', { VisibilityTimeout: '1' })
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'again' }))
  const handles = []
  for (const count of ['1', '2', '3']) {
    const [m] = await receive(QueueUrl, { AttributeNames: ['ApproximateReceiveCount'], VisibilityTimeout: count === '3' ? 900 : undefined })
    assert.equal(m.Attributes.ApproximateReceiveCount, count)
    handles.push(m.ReceiptHandle)
  }
  // A lost lease leaves the message to its new holder.
  await send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: handles[2], VisibilityTimeout: 1800 }))
  await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: handles[0] }))
  await refused(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: handles[1], VisibilityTimeout: 5 }), 'MessageNotInflight')
  const { Attributes } = await send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['ApproximateNumberOfMessagesNotVisible'] }))
  assert.deepEqual(Attributes, { ApproximateNumberOfMessagesNotVisible: '1' })
  // A timeout of 0 gives it to the next one.
  await send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: handles[2], VisibilityTimeout: 0 }))
  const [m] = await receive(QueueUrl, { AttributeNames: ['All'], VisibilityTimeout: 900 })
  assert.equal(m.Attributes.ApproximateReceiveCount, '4')
  await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
})

test('a message that nobody has since its timeout can still be deleted', async () => {
  const QueueUrl = await newQueue('late')
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'late' }))
  const [m] = await receive(QueueUrl, { VisibilityTimeout: 0 })
  await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
  const { Attributes } = await send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['ApproximateNumberOfMessages'] }))
  assert.equal(Attributes.ApproximateNumberOfMessages, '0')
})

test('a delayed message keeps its ID and comes when it is due', async () => {
  const QueueUrl = await newQueue('delayed')
  const begun = Date.now()
  const sent = await send(new SendMessageCommand({ QueueUrl, MessageBody: 'later', DelaySeconds: 2 }))
  let got = []
  while (got.length === 0) got = await receive(QueueUrl)
  assert.ok(Date.now() - begun >= 2000)
  assert.equal(got[0].MessageId, sent.MessageId)
})

test('a receive waits for the next message', async () => {
  const QueueUrl = await newQueue('waits')
  const waiting = receive(QueueUrl)
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'come' }))
  assert.equal((await waiting)[0].Body, 'come')
})

test('the attributes of a queue are set and shown', async () => {
  const QueueUrl = await newQueue('settings', { VisibilityTimeout: '43200' })
  const shown = async () => (await send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['All'] }))).Attributes
  assert.equal((await shown()).VisibilityTimeout, '43200')
  assert.equal((await shown()).RedrivePolicy, undefined)
  await send(new SetQueueAttributesCommand({ QueueUrl, Attributes: {
    VisibilityTimeout: '60', RedrivePolicy: JSON.stringify({ deadLetterTargetArn: 'arn:aws:sqs:x:1:dead', maxReceiveCount: '4' }) } }))
  const all = await shown()
  assert.equal(all.VisibilityTimeout, '60')
  assert.equal(JSON.parse(all.RedrivePolicy).maxReceiveCount, 4)
  const consumer = await (await fetch(endpoint + '/channel/settings/consumer/settings')).json()
  assert.equal(consumer.Policy.MaxRetries, '3')
  assert.equal(consumer.Policy.Timeout, '1m')
  await refused(new CreateQueueCommand({ QueueName: 'settings', Attributes: { VisibilityTimeout: '61' } }), 'QueueNameExists')
  await newQueue('settings', { VisibilityTimeout: '60' })
  await refused(new SetQueueAttributesCommand({ QueueUrl, Attributes: { Colour: 'red' } }), 'InvalidAttributeName')
  await refused(new SetQueueAttributesCommand({ QueueUrl, Attributes: { VisibilityTimeout: '43201' } }), 'InvalidAttributeValue')
  await refused(new SetQueueAttributesCommand({ QueueUrl, Attributes: { DelaySeconds: '901' } }), 'InvalidAttributeValue')
  await refused(new SetQueueAttributesCommand({ QueueUrl, Attributes: { ReceiveMessageWaitTimeSeconds: '21' } }), 'InvalidAttributeValue')
  await refused(new SetQueueAttributesCommand({ QueueUrl, Attributes: { MessageRetentionPeriod: '60' } }), 'InvalidAttributeValue')
  await refused(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['Colour'] }), 'InvalidAttributeName')
})

test('a queue has defaults for the delay of its messages and the wait of its receives', async () => {
  const QueueUrl = await newQueue('defaults', { DelaySeconds: '2', ReceiveMessageWaitTimeSeconds: '20' })
  assert.equal(await newQueue('defaults', { DelaySeconds: '2' }), QueueUrl)
  await refused(new CreateQueueCommand({ QueueName: 'defaults', Attributes: { DelaySeconds: '3' } }), 'QueueNameExists')
  const { Attributes } = await send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['DelaySeconds', 'ReceiveMessageWaitTimeSeconds'] }))
  assert.deepEqual(Attributes, { DelaySeconds: '2', ReceiveMessageWaitTimeSeconds: '20' })
  const begun = Date.now()
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'later' }))
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'now', DelaySeconds: 0 }))
  const got = []
  while (got.length < 2) got.push(...await receive(QueueUrl, { WaitTimeSeconds: undefined }))
  assert.deepEqual(got.map((m) => m.Body), ['now', 'later'])
  assert.ok(Date.now() - begun >= 2000)
  await send(new SetQueueAttributesCommand({ QueueUrl, Attributes: { DelaySeconds: '0', ReceiveMessageWaitTimeSeconds: '0' } }))
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: undefined }), [])
})

test('the time of the first receive is that or absent', async () => {
  const QueueUrl = await newQueue('first')
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }))
  const [m] = await receive(QueueUrl, { AttributeNames: ['All'], VisibilityTimeout: 0 })
  assert.ok(Number(m.Attributes.ApproximateFirstReceiveTimestamp) >= Number(m.Attributes.SentTimestamp))
  const [again] = await receive(QueueUrl, { AttributeNames: ['All'] })
  assert.equal(again.Attributes.ApproximateReceiveCount, '2')
  assert.equal(again.Attributes.ApproximateFirstReceiveTimestamp, undefined)
})

test('the receipt handle of another queue changes nothing', async () => {
  const [a, b] = [await newQueue('handle-a'), await newQueue('handle-b')]
  await send(new SendMessageCommand({ QueueUrl: a, MessageBody: 'mine' }))
  const [{ ReceiptHandle }] = await receive(a, { VisibilityTimeout: 900 })
  await refused(new DeleteMessageCommand({ QueueUrl: b, ReceiptHandle }), 'ReceiptHandleIsInvalid')
  await refused(new ChangeMessageVisibilityCommand({ QueueUrl: b, ReceiptHandle, VisibilityTimeout: 0 }), 'ReceiptHandleIsInvalid')
  const { Attributes } = await send(new GetQueueAttributesCommand({ QueueUrl: a, AttributeNames: ['ApproximateNumberOfMessagesNotVisible'] }))
  assert.deepEqual(Attributes, { ApproximateNumberOfMessagesNotVisible: '1' })
  await send(new ChangeMessageVisibilityCommand({ QueueUrl: a, ReceiptHandle, VisibilityTimeout: 43200 }))
  await send(new DeleteMessageCommand({ QueueUrl: a, ReceiptHandle }))
})

test('an SDK reads why a request did not get to the door', async () => {
  const QueueUrl = await newQueue('shape')
  const elsewhere = new SQSClient({ endpoint: endpoint + '/sqs/shape', region: 'eu-west-1', maxAttempts: 1, useQueueUrlAsEndpoint: false,
    credentials: { accessKeyId: 'any', secretAccessKey: 'any' } })
  await assert.rejects(elsewhere.send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' })), (e) => {
    assert.equal(e.name, 'InvalidAddress', `${e.name}: ${e.message}`)
    assert.equal(e.$metadata.httpStatusCode, 404)
    assert.ok(e.$metadata.requestId)
    return true
  })
})

test('a message that was received as often as the policy says is a dead letter', async () => {
  const QueueUrl = await newQueue('dead', { RedrivePolicy: JSON.stringify({ deadLetterTargetArn: 'arn:aws:sqs:x:1:dead', maxReceiveCount: 2 }) })
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'poison' }))
  for (const count of ['1', '2']) {
    const [m] = await receive(QueueUrl, { AttributeNames: ['All'] })
    assert.equal(m.Attributes.ApproximateReceiveCount, count)
    await send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0 }))
  }
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
  const dlq = await (await fetch(endpoint + '/channel/dead/consumer/dead/dlq')).json()
  assert.equal(dlq.DeadJobs?.length ?? dlq.Result.length, 1)
})

test('a FIFO queue keeps the order of a group and takes a message once', async () => {
  const QueueUrl = await newQueue('order.fifo', { FifoQueue: 'true' })
  const to = (MessageGroupId, MessageBody, more = {}) => send(new SendMessageCommand({ QueueUrl, MessageGroupId, MessageBody, ...more }))
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }), 'MissingParameter')
  const first = await to('g', '1')
  const again = await to('g', '1')
  assert.equal(again.MessageId, first.MessageId)
  assert.equal(again.SequenceNumber, first.SequenceNumber)
  const named = await to('g', '2', { MessageDeduplicationId: 'two' })
  assert.equal((await to('g', 'other content', { MessageDeduplicationId: 'two' })).MessageId, named.MessageId)
  assert.equal(named.MessageId, 'two')
  const third = await to('g', '3', { MessageDeduplicationId: 'odd/"id"' })
  assert.ok(first.SequenceNumber < named.SequenceNumber && named.SequenceNumber < third.SequenceNumber)
  const twice = await send(new SendMessageBatchCommand({ QueueUrl, Entries: ['a', 'b'].map((Id) => ({ Id, MessageGroupId: 'g', MessageBody: '4' })) }))
  assert.deepEqual(twice.Successful.map((s) => s.MessageId), [twice.Successful[0].MessageId, twice.Successful[0].MessageId])
  const order = []
  while (order.length < 4) {
    for (const m of await receive(QueueUrl, { AttributeNames: ['All'], MaxNumberOfMessages: 10, ReceiveRequestAttemptId: randomUUID() })) {
      assert.equal(m.Attributes.MessageGroupId, 'g')
      assert.ok(m.Attributes.SequenceNumber && m.Attributes.MessageDeduplicationId)
      order.push(m.Body)
      await send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
    }
  }
  assert.deepEqual(order, ['1', '2', '3', '4'])
})

test('a deduplication ID names one message of any queue', async () => {
  const QueueUrl = await newQueue('once')
  const one = await send(new SendMessageCommand({ QueueUrl, MessageBody: 'x', MessageDeduplicationId: 'order-1' }))
  const two = await send(new SendMessageCommand({ QueueUrl, MessageBody: 'x', MessageDeduplicationId: 'order-1' }))
  assert.deepEqual([one.MessageId, two.MessageId], ['order-1', 'order-1'])
  assert.equal((await receive(QueueUrl)).length, 1)
  assert.equal((await receive(QueueUrl, { WaitTimeSeconds: 0 })).length, 0)
})

test('values out of range and actions that are not there are refused', async () => {
  const QueueUrl = await newQueue('bounds')
  await refused(new ReceiveMessageCommand({ QueueUrl, MaxNumberOfMessages: 11 }), 'InvalidParameterValue')
  await refused(new ReceiveMessageCommand({ QueueUrl, MaxNumberOfMessages: 0 }), 'InvalidParameterValue')
  await refused(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 21 }), 'InvalidParameterValue')
  await refused(new ReceiveMessageCommand({ QueueUrl, VisibilityTimeout: 43201 }), 'InvalidParameterValue')
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: '' }), 'MissingParameter')
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: 'x'.repeat((1 << 20) + 1) }), 'InvalidParameterValue')
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: 'a\u0001' }), 'InvalidMessageContents')
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: 'x', MessageAttributes: { 'AWS.x': { DataType: 'String', StringValue: '1' } } }), 'InvalidParameterValue')
  await refused(new SendMessageCommand({ QueueUrl, MessageBody: 'x', MessageAttributes: { n: { DataType: 'Number', StringValue: 'one' } } }), 'InvalidParameterValue')
  await refused(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: 'nonsense' }), 'ReceiptHandleIsInvalid')
  await refused(new ListQueueTagsCommand({ QueueUrl }), 'UnsupportedOperation')
  await send(new SendMessageCommand({ QueueUrl, MessageBody: 'x'.repeat(1 << 20) }))
  assert.equal((await receive(QueueUrl))[0].Body.length, 1 << 20)
})

test('a queue is purged and deleted', async () => {
  const QueueUrl = await newQueue('ends')
  for (const MessageBody of ['a', 'b']) await send(new SendMessageCommand({ QueueUrl, MessageBody }))
  await send(new PurgeQueueCommand({ QueueUrl }))
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), [])
  const waiting = assert.rejects(receive(QueueUrl), (e) => e.name === 'QueueDoesNotExist')
  await send(new DeleteQueueCommand({ QueueUrl }))
  await waiting
  await refused(new GetQueueUrlCommand({ QueueName: 'ends' }), 'QueueDoesNotExist')
  await newQueue('ends')
})

test('the rest of the broker sees what comes over the door', async () => {
  const QueueUrl = await newQueue('shared')
  const { MessageId } = await send(new SendMessageCommand({ QueueUrl, MessageBody: '{"a":1}', MessageAttributes: { 'X-Kind': { DataType: 'String', StringValue: 'big' } } }))
  const message = await (await fetch(`${endpoint}/channel/shared/message/${MessageId}`)).json()
  assert.equal(message.Payload, '{"a":1}')
  assert.equal(message.ProducerID ?? 'sqs', 'sqs')
  const { Token: channel } = await (await fetch(`${endpoint}/channel/shared`)).json()
  const headers = { 'X-Broker-Channel-Token': channel, 'X-Broker-Producer-ID': 'other', 'X-Broker-Producer-Token': 'other' }
  await fetch(`${endpoint}/producer/other`, { method: 'PUT', body: new URLSearchParams({ token: 'other' }) })
  const published = await fetch(`${endpoint}/channel/shared/broadcast`, { method: 'POST', body: new Uint8Array([255, 0, 1]),
    headers: { ...headers, 'X-Trace': 'abc', 'X-Broker-Metadata-Headers': 'X-Trace' } })
  assert.equal(published.status, 201)
  const got = []
  while (got.length < 2) got.push(...await receive(QueueUrl, { MaxNumberOfMessages: 10, MessageAttributeNames: ['All'] }))
  assert.deepEqual(got[0].MessageAttributes, { 'X-Kind': { DataType: 'String', StringValue: 'big' } })
  assert.equal(got[1].Body, Buffer.from([255, 0, 1]).toString('base64'))
  assert.equal(got[1].MessageAttributes['X-Trace'].StringValue, 'abc')
  assert.equal(got[1].MessageAttributes.PayloadEncoding.StringValue, 'base64')
})
