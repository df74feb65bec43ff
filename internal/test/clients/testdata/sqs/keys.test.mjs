// Access keys and signatures, with @aws-sdk/client-sqs against a broker whose management is closed (SQS_ADMIN), at
// SQS_ENDPOINT.
import assert from 'node:assert/strict'
import test from 'node:test'
import {
  CreateQueueCommand, DeleteMessageCommand, GetQueueAttributesCommand, GetQueueUrlCommand, ListQueuesCommand, PurgeQueueCommand,
  ReceiveMessageCommand, SendMessageCommand, SetQueueAttributesCommand, SQSClient,
} from '@aws-sdk/client-sqs'

const endpoint = process.env.SQS_ENDPOINT

const manage = async (method, path, form) => {
  const res = await fetch(endpoint + path, { method, headers: { 'X-Broker-Admin-Token': process.env.SQS_ADMIN }, body: form && new URLSearchParams(form) })
  return [res.status, res.status === 204 ? null : await res.json()]
}

async function newQueue(name) {
  assert.equal((await manage('PUT', `/channel/${name}`))[0], 201)
  assert.equal((await manage('PUT', `/channel/${name}/consumer/${name}`, { type: 'pull' }))[0], 201)
  const [status, key] = await manage('POST', `/channel/${name}/sqs-key`)
  assert.equal(status, 201)
  return key
}

const clientOf = (key, more = {}) => new SQSClient({ endpoint, region: 'us-east-1', maxAttempts: 1,
  credentials: { accessKeyId: key.AccessKeyId, secretAccessKey: key.SecretAccessKey }, ...more })
const urlOf = (name) => `${endpoint}/sqs/${name}/${name}`

async function refused(promise, name, status) {
  await assert.rejects(promise, (e) => {
    assert.equal(e.name, name, `${e.name}: ${e.message}`)
    assert.equal(e.$metadata.httpStatusCode, status)
    return true
  })
}

test('a key sends and receives on its channel, and does nothing else', async () => {
  const key = await newQueue('one')
  await newQueue('two')
  const client = clientOf(key)
  const QueueUrl = urlOf('one')
  const { MessageId } = await client.send(new SendMessageCommand({ QueueUrl, MessageBody: 'grüße' }))
  const { Messages: [m] } = await client.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20 }))
  assert.equal(m.MessageId, MessageId)
  await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: m.ReceiptHandle }))
  assert.equal((await client.send(new GetQueueUrlCommand({ QueueName: 'one' }))).QueueUrl, QueueUrl)
  assert.deepEqual((await client.send(new ListQueuesCommand({}))).QueueUrls, [QueueUrl])
  await client.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ['All'] }))
  await refused(client.send(new CreateQueueCommand({ QueueName: 'three' })), 'AccessDenied', 403)
  await refused(client.send(new SetQueueAttributesCommand({ QueueUrl, Attributes: { VisibilityTimeout: '1' } })), 'AccessDenied', 403)
  await refused(client.send(new PurgeQueueCommand({ QueueUrl })), 'AccessDenied', 403)
  for (const other of ['two', 'nowhere']) {
    await refused(client.send(new SendMessageCommand({ QueueUrl: urlOf(other), MessageBody: 'x' })), 'AccessDenied', 403)
  }
})

test('wrong, old and missing signatures are refused', async () => {
  const key = await newQueue('signed')
  const QueueUrl = urlOf('signed')
  const command = () => new SendMessageCommand({ QueueUrl, MessageBody: 'x' })
  await refused(clientOf({ ...key, SecretAccessKey: 'wrong' }).send(command()), 'SignatureDoesNotMatch', 403)
  await refused(clientOf({ ...key, AccessKeyId: 'PSTKAAAAAAAAAAAAAAAA' }).send(command()), 'InvalidClientTokenId', 403)
  await refused(clientOf({ AccessKeyId: 'any', SecretAccessKey: 'any' }).send(command()), 'InvalidClientTokenId', 403)
  for (const off of [-16, 16]) {
    await refused(clientOf(key, { systemClockOffset: off * 60_000 }).send(command()), 'SignatureDoesNotMatch', 403)
  }
  await clientOf(key, { systemClockOffset: -13 * 60_000 }).send(command())
  const res = await fetch(QueueUrl, { method: 'POST', headers: { 'X-Amz-Target': 'AmazonSQS.SendMessage' }, body: JSON.stringify({ QueueUrl, MessageBody: 'x' }) })
  assert.equal(res.status, 403)
  assert.match(res.headers.get('x-amzn-query-error'), /^MissingAuthenticationToken;Sender$/)
  assert.ok(res.headers.get('x-amzn-requestid'))
  assert.match((await res.json()).__type, /MissingAuthenticationToken$/)
})

test('a request that was changed after it was signed is refused', async () => {
  const key = await newQueue('changed')
  const QueueUrl = urlOf('changed')
  for (const change of [
    (r) => { r.body = r.body.replace('small', 'large') },
    (r) => { r.headers['x-amz-target'] = 'AmazonSQS.ReceiveMessage' },
    (r) => { r.path = '/sqs/changed/changed' },
    (r) => { r.headers.authorization = r.headers.authorization.replace(/;x-amz-target/, '') },
  ]) {
    const client = clientOf(key)
    client.middlewareStack.add((next) => (args) => { change(args.request); return next(args) }, { step: 'deserialize', priority: 'low' })
    await assert.rejects(client.send(new SendMessageCommand({ QueueUrl, MessageBody: 'small' })), (e) => e.$metadata.httpStatusCode === 403)
  }
  const { Messages } = await clientOf(key).send(new ReceiveMessageCommand({ QueueUrl }))
  assert.equal(Messages, undefined)
})

test('a key ends, also under a receive that waits', async () => {
  const [first, other] = [await newQueue('ending'), (await manage('POST', '/channel/ending/sqs-key'))[1]]
  const QueueUrl = urlOf('ending')
  const wait = (key) => clientOf(key).send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20 }))
  await clientOf(first).send(new GetQueueUrlCommand({ QueueName: 'ending' }))
  const waiting = refused(wait(first), 'InvalidClientTokenId', 403)
  assert.equal((await manage('DELETE', `/channel/ending/sqs-key/${first.AccessKeyId}`))[0], 204)
  await waiting
  await refused(clientOf(first).send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' })), 'InvalidClientTokenId', 403)
  assert.equal((await manage('DELETE', `/channel/ending/sqs-key/${first.AccessKeyId}`))[0], 404)
  assert.equal((await manage('DELETE', `/channel/two/sqs-key/${other.AccessKeyId}`))[0], 404)
  await clientOf(other).send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }))
  assert.equal((await manage('DELETE', '/channel/ending/sqs-key'))[0], 204)
  await refused(clientOf(other).send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' })), 'InvalidClientTokenId', 403)
  assert.equal((await manage('DELETE', '/channel/ending/sqs-key'))[0], 204)
  assert.equal((await manage('POST', '/channel/nowhere/sqs-key'))[0], 404)
})

test('names that URLs encode are signed', async () => {
  assert.equal((await manage('PUT', '/channel/a:b@c'))[0], 201)
  assert.equal((await manage('PUT', '/channel/a:b@c/consumer/x~y.z', { type: 'pull' }))[0], 201)
  const [, key] = await manage('POST', '/channel/a:b@c/sqs-key')
  const client = clientOf(key)
  const { QueueUrls: [QueueUrl] } = await client.send(new ListQueuesCommand({}))
  await client.send(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }))
  assert.equal((await client.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20 }))).Messages.length, 1)
})
