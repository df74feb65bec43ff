import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { test } from 'node:test';
import express from 'express';
import fastify from 'fastify';
import { Client, Gone, TooManyRequests } from '../dist/esm/index.js';
import { consumer } from '../dist/esm/express.js';
import plugin from '../dist/esm/fastify.js';
import { unique, until, url } from './support.mjs';

const secret = `whsec_${randomBytes(32).toString('base64')}`;

/** An application of each framework with the functions of channels, and its address. */
const frameworks = {
  express: async (t, consumers, options = {}) => {
    const c = consumer({ secret, onError: () => undefined, ...options });
    for (const [channel, f] of Object.entries(consumers)) c.on(channel, f);
    const app = express();
    app.post('/hook', c.middleware);
    app.use(express.json());
    const server = createServer(app);
    await new Promise((go) => server.listen(0, '127.0.0.1', go));
    t.after(() => { server.close(); server.closeAllConnections(); });
    return `http://127.0.0.1:${server.address().port}/hook`;
  },
  fastify: async (t, consumers, options = {}) => {
    const app = fastify();
    await app.register(plugin, { secret, path: '/hook', consumers, onError: () => undefined, ...options });
    app.post('/json', async (request) => request.body);
    const address = await app.listen({ port: 0, host: '127.0.0.1' });
    t.after(() => app.close());
    const answer = await fetch(`${address}/json`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"a":1}' });
    assert.deepEqual(await answer.json(), { a: 1 }); // other routes keep their parsers
    return `${address}/hook`;
  },
};

function signed(body, { id = unique('m'), at = Math.floor(Date.now() / 1000), key = secret, ...headers } = {}) {
  const signature = createHmac('sha256', Buffer.from(key.slice(6), 'base64')).update(`${id}.${at}.`).update(body).digest('base64');
  return {
    method: 'POST', body,
    headers: { 'content-type': 'application/json', 'webhook-id': id, 'webhook-timestamp': String(at), 'webhook-signature': `v1,${signature}`, 'x-broker-channel-id': 'orders', ...headers },
  };
}

for (const [name, serve] of Object.entries(frameworks)) {
  test(`${name}: a real delivery reaches the function, and its answer comes back`, async (t) => {
    const channel = unique('orders');
    const seen = [];
    const hook = await serve(t, { [channel]: async (m) => {
      seen.push([m.json(), m.messageId, m.attempt, m.headers['x-kind']]);
      if (seen.length === 1) throw new Error('not yet');
      return { taken: true };
    } });
    const c = new Client({ url });
    t.after(() => c.close());
    await c.manage.putChannel(channel);
    await c.manage.putConsumer(channel, 'shop', { callbackUrl: hook, signingSecret: secret, backoff: 'constant:100ms', responses: 'store' });
    const { messageId } = await c.publish(channel, { order: 'żółw' }, { headers: { 'X-Kind': 'express' } });
    await until(() => seen.length === 2, 'the second attempt');
    assert.deepEqual(seen, [[{ order: 'żółw' }, messageId, 1, 'express'], [{ order: 'żółw' }, messageId, 2, 'express']]);
    await until(async () => (await c.responses(channel, messageId))[0]?.Body === '{"taken":true}', 'the response');
  });

  test(`${name}: a request that the broker did not sign, or not now, never reaches the function`, async (t) => {
    let calls = 0;
    const hook = await serve(t, { orders: () => { calls++; } });
    const at = Math.floor(Date.now() / 1000);
    const status = async (request) => (await fetch(hook, request)).status;
    assert.equal(await status({ method: 'POST', body: '{}' }), 401);
    assert.equal(await status(signed('{}', { key: `whsec_${randomBytes(32).toString('base64')}` })), 401);
    assert.equal(await status({ ...signed('{"a":1}'), body: '{"a": 1}' }), 401);
    assert.equal(await status(signed('{}', { at: at - 301 })), 401);
    assert.equal(await status(signed('{}', { at: at + 302 })), 401);
    assert.equal(await status(signed('{}', { 'x-broker-channel-id': 'other' })), 404);
    assert.equal(calls, 0);
    assert.equal(await status(signed('')), 204);
    assert.equal(calls, 1);
  });

  test(`${name}: a message is done once, also when its copies come together`, async (t) => {
    let calls = 0;
    let finish;
    const stored = new Set();
    const hook = await serve(t, { orders: () => { calls++; return new Promise((r) => (finish = r)); } }, {
      store: { has: async (id) => stored.has(id), add: async (id) => void stored.add(id) },
    });
    for (let round = 1, together = false; !together; round++) {
      const request = () => fetch(hook, signed('{}', { id: `same-${round}` }));
      finish = undefined;
      const both = [request(), request()];
      await until(() => finish);
      finish();
      const statuses = (await Promise.all(both)).map((r) => r.status);
      together = statuses.every((s) => s === 204); // else the second one came when the first was done
      assert.ok(together || round < 100, `${statuses}`);
      assert.equal((await request()).status, 200);
      assert.deepEqual([calls, stored.size], [round, round]);
    }
  });

  test(`${name}: Gone is 410, TooManyRequests 429 with Retry-After, an error 500 without its text`, async (t) => {
    const errors = [new Gone(), new TooManyRequests({ retryAfter: 7 }), new TooManyRequests(3), new Error('geheim')];
    const hook = await serve(t, { orders: () => { throw errors.shift(); } });
    const answers = [];
    for (let i = 0; i < 4; i++) {
      const r = await fetch(hook, signed('{}', { id: 'again' }));
      answers.push([r.status, r.headers.get('retry-after'), (await r.text()).includes('geheim')]);
    }
    assert.deepEqual(answers, [[410, null, false], [429, '7', false], [429, '3', false], [500, null, false]]);
  });

  test(`${name}: a body that is too large is refused`, async (t) => {
    let calls = 0;
    const hook = await serve(t, { orders: () => { calls++; } }, { maxBody: 1000 });
    const answer = await fetch(hook, signed('x'.repeat(5000)));
    assert.deepEqual([answer.status, calls], [413, 0]);
  });
}

test('a parser before the route is told of, and the raw parser is fine', async (t) => {
  const errors = [];
  const c = consumer({ secret, onError: (e) => errors.push(e.message) }).on('orders', () => undefined);
  const app = express();
  app.post('/raw', express.raw({ type: '*/*' }), c.middleware);
  app.post('/json', express.json(), c.middleware);
  const server = createServer(app);
  await new Promise((go) => server.listen(0, '127.0.0.1', go));
  t.after(() => server.close());
  const at = `http://127.0.0.1:${server.address().port}`;
  assert.equal((await fetch(`${at}/raw`, signed('{"a":1}'))).status, 204);
  assert.equal((await fetch(`${at}/json`, signed('{"a":1}'))).status, 500);
  assert.match(errors.join(), /mount this route before express.json\(\)/);
});

test('two secrets are right while they are changed, and one that is none is an error', async (t) => {
  const next = `whsec_${randomBytes(24).toString('base64')}`;
  const hook = await frameworks.express(t, { orders: () => undefined }, { secret: [next, secret] });
  assert.equal((await fetch(hook, signed('{}'))).status, 204);
  assert.equal((await fetch(hook, signed('{}', { key: next }))).status, 204);
  assert.throws(() => consumer({ secret: 'geheim' }), (e) => /whsec_/.test(e.message) && !e.message.includes('geheim'));
});

test('the plugin is what require gives', async (t) => {
  const { createRequire } = await import('node:module');
  const required = createRequire(import.meta.url)('../dist/cjs/fastify.js');
  const app = fastify();
  await app.register(required, { secret, path: '/hook', consumers: { orders: () => undefined } });
  t.after(() => app.close());
  const { method, body, headers } = signed('{}');
  assert.equal((await app.inject({ method, url: '/hook', headers, payload: body })).statusCode, 204);
});
