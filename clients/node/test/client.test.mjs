import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Client, LeaseLost, version, Worker } from '../dist/esm/index.js';
import { unique, until, url } from './support.mjs';

async function withClient(options, f) {
  const client = new Client({ url, ...options });
  try {
    return await f(client);
  } finally {
    await client.close();
  }
}

/** A server that answers as told, and ends with the test. */
async function serverOf(t, answer) {
  const requests = [];
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const r = { method: request.method, url: request.url, headers: request.headers, body: Buffer.concat(parts).toString() };
      requests.push(r);
      if (request.method === 'PUT') return response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"Token":"t","Type":"pull"}');
      answer(r, response, requests);
    });
  });
  await new Promise((go) => server.listen(0, '127.0.0.1', go));
  t.after(() => { server.close(); server.closeAllConnections(); });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

test('the version is that of the package', () => {
  assert.equal(version, JSON.parse(readFileSync(new URL('../package.json', import.meta.url))).version);
});

test('a message is published once, however often it is asked', () => withClient({}, async (c) => {
  const channel = unique('once');
  const first = await c.publish(channel, { a: 1 }, { messageId: 'm', headers: { 'X-Kind': 'é' } });
  assert.deepEqual([first.status, first.duplicate], [201, false]);
  const second = await c.publish(channel, { a: 1 }, { messageId: 'm', headers: { 'X-Kind': 'é' } });
  assert.equal(second.duplicate, true);
  await assert.rejects(c.publish(channel, { a: 2 }, { messageId: 'm' }), { code: 'message_id_conflict', status: 409 });
  const message = await c.message(channel, 'm');
  assert.equal(message.Payload, '{"a":1}');
  assert.equal(message.Headers['X-Kind'], 'é');
}));

test('a job is claimed, kept, given back and acknowledged', () => withClient({}, async (c) => {
  const q = unique('claim');
  await c.enqueue(q, { task: 'paint', args: ['red'] });
  const { jobs: [job] } = await c.claim(q, { limit: 5, wait: 20_000 });
  assert.deepEqual(job.call(), { task: 'paint', args: ['red'], kwargs: {}, meta: {} });
  await job.extend();
  await job.nack({ failed: true, delay: 1000, reason: 'not yet' });
  await assert.rejects(job.ack(), LeaseLost);
  const { jobs: [again] } = await c.claim(q, { wait: 20_000 });
  assert.deepEqual([again.messageId, again.attempt], [job.messageId, 2]);
  await again.ack();
  assert.equal((await c.message(q, job.messageId)).Jobs[0].Status, 'DELIVERED');
}));

test('one bad message of many fails no other', () => withClient({}, async (c) => {
  const q = unique('many');
  const results = await c.publishMany(q, [{ payload: 'a' }, { payload: 'b', priority: 5000 }, { payload: new Uint8Array([255, 0]) }]);
  assert.deepEqual(results.map((r) => r.error?.code), [undefined, 'invalid_priority', undefined]);
  assert.equal((await c.message(q, results[2].messageId)).PayloadEncoding, 'base64');
}));

test('a schedule is changed and deleted before its time', () => withClient({}, async (c) => {
  const q = unique('later');
  await c.schedule(q, 'x', { messageId: 's', delay: 3_600_000 });
  assert.equal((await c.scheduled(q, 's')).status, 'SCHEDULED');
  await c.reschedule(q, 's', { delay: 7_200_000, payload: 'y' });
  assert.equal((await c.scheduled(q, 's')).payload, 'y');
  assert.equal(await c.unschedule(q, 's'), true);
  assert.equal(await c.unschedule(q, 's'), false);
  assert.equal(await c.scheduled(q, 's'), undefined);
}));

test('a request gets the response of a worker', () => withClient({}, async (c) => {
  const q = unique('ask');
  await c.manage.putChannel(q);
  await c.manage.putConsumer(q, q, { type: 'pull', responses: 'store' });
  const w = new Worker(q, { add: ({ args: [a, b] }) => ({ sum: a + b }) }, { client: c, wait: 1000 });
  const run = w.run();
  const answer = await c.request(q, { task: 'add', args: [2, 3], kwargs: {}, meta: {} }, { wait: 20_000 });
  assert.deepEqual([answer.status, JSON.parse(answer.text), answer.consumerId], [200, { sum: 5 }, q]);
  const [entry] = await c.responses(q, answer.messageId);
  assert.equal(entry.Body, '{"sum":5}');
  await w.close();
  await run;
}));

test('a bulk becomes messages', () => withClient({}, async (c) => {
  const q = unique('bulk');
  const { id } = await c.bulk(q, '{"Payload":"1"}\n{"Payload":"2"}\n', { contentType: 'application/x-ndjson' });
  await until(async () => (await c.bulkStatus(q, id)).Published === 2, 'the bulk');
}));

test('a push consumer is no queue, and the error says so', () => withClient({}, async (c) => {
  const q = unique('push');
  await c.manage.putChannel(q);
  await c.manage.putConsumer(q, q, { callbackUrl: 'http://127.0.0.1:9/' });
  await assert.rejects(c.enqueue(q, { task: 'x' }), { message: `queue "${q}": consumer ${q} of channel ${q} is a push consumer; a worker needs a pull consumer` });
}));

test('a misspelt option is an error that names it', () => withClient({}, async (c) => {
  await assert.rejects(c.publish('q', 'x', { prioriti: 3 }), /no option "prioriti": did you mean "priority"\?/);
  assert.throws(() => new Client({ Url: url }), /did you mean "url"/);
  assert.throws(() => new Client({ url: 'http://me:secret@127.0.0.1/' }), (e) => !e.message.includes('secret'));
}));

test('a lost answer is asked again with the same message ID and body', async (t) => {
  const broker = await serverOf(t, (r, response, all) => {
    const n = all.filter((x) => x.method === 'POST').length;
    if (n === 1) return response.destroy();
    if (n === 2) return response.writeHead(503, { 'Retry-After': '0' }).end();
    if (n === 3) return response.writeHead(200, { 'Content-Length': '100' }).write('half', () => response.destroy());
    response.writeHead(201, { Location: '/channel/q/message/x' }).end();
  });
  await withClient({ url: broker.url }, async (c) => {
    const p = await c.publish('q', 'hello');
    const posts = broker.requests.filter((r) => r.method === 'POST');
    assert.equal(posts.length, 4);
    assert.deepEqual([...new Set(posts.map((r) => `${r.headers['x-broker-message-id']} ${r.body}`))], [`${p.messageId} hello`]);
  });
});

test('Retry-After is heeded, and one beyond the time of the publish ends it', async (t) => {
  const times = [];
  const broker = await serverOf(t, (r, response) => {
    times.push(performance.now());
    if (times.length === 1) return response.writeHead(429, { 'Retry-After': '1', 'Content-Type': 'application/problem+json' }).end('{"code":"producer_full"}');
    response.writeHead(429, { 'Retry-After': '3000', 'Content-Type': 'application/problem+json' }).end('{"code":"producer_full"}');
  });
  await withClient({ url: broker.url }, async (c) => {
    await assert.rejects(c.publish('q', 'x'), { code: 'producer_full', status: 429, retryAfter: 3000 });
  });
  assert.equal(times.length, 2);
  assert.ok(times[1] - times[0] >= 990, `${times[1] - times[0]}`);
});

test('an answer that drips ends at the time of the request', async (t) => {
  const broker = await serverOf(t, (r, response) => {
    response.writeHead(201, { Location: '/x' });
    const drip = setInterval(() => response.write(' '), 50);
    response.on('close', () => clearInterval(drip));
  });
  await withClient({ url: broker.url, timeout: 300, tries: 1 }, async (c) => {
    await assert.rejects(c.publish('q', 'x'), { code: 'timeout', status: 0 });
  });
});

test('an answer without end is given up', async (t) => {
  const broker = await serverOf(t, (r, response) => {
    response.writeHead(200, {});
    const part = Buffer.alloc(1 << 20);
    const more = () => { while (!response.destroyed && response.write(part)); };
    response.on('drain', more);
    more();
  });
  await withClient({ url: broker.url, tries: 1 }, async (c) => {
    await assert.rejects(c.publish('q', 'x'), { code: 'answer_too_large' });
  });
});

test('a token that was changed is read anew', () => withClient({}, async (c) => {
  const q = unique('token');
  await c.publish(q, 'x');
  await c.manage.putChannel(q, { token: 'another' });
  await c.publish(q, 'y');
  await c.manage.putChannel(q, { token: 'a-third' });
  await withClient({ channelToken: 'wrong' }, (other) => assert.rejects(other.publish(q, 'x'), { code: 'channel_token_mismatch' }));
}));

test('where management is closed, the error says what to set, and no token', async (t) => {
  const server = createServer((request, response) => {
    response.writeHead(401, { 'Content-Type': 'application/problem+json' }).end('{"code":"token_missing","status":401}');
  });
  await new Promise((go) => server.listen(0, '127.0.0.1', go));
  t.after(() => server.close());
  const closed = `http://127.0.0.1:${server.address().port}`;
  await withClient({ url: closed, adminToken: 'geheim' }, async (c) => {
    await assert.rejects(c.claim('q'), (e) => /queue "q" \(401 token_missing\): set PENSTOCK_ADMIN_TOKEN/.test(e.message) && !e.message.includes('geheim'));
  });
});

test('fetch takes the place of the own transport', () => withClient({ fetch: globalThis.fetch }, async (c) => {
  const q = unique('fetch');
  await c.enqueue(q, { task: 'x' });
  assert.equal((await c.claim(q, { wait: 20_000 })).jobs.length, 1);
}));

test('metadata cannot change the request, and a line has no time of its own', () => withClient({}, async (c) => {
  const channel = unique('reserved');
  for (const name of ['Content-Length', 'transfer-encoding', 'HOST', 'X-Broker-Message-ID', 'Connection']) {
    await assert.rejects(c.publish(channel, 'x', { headers: { [name]: '1' } }), { code: 'config' });
  }
  await assert.rejects(c.publishMany(channel, [{ payload: 'x', within: 1 }]), /a message of publishMany has no option "within"/);
}));
