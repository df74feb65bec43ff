import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, GiveBack, LeaseLost, Reject, Worker } from '../dist/esm/index.js';
import { unique, until, url } from './support.mjs';

async function working(queue, handlers, options, f) {
  const client = new Client({ url });
  const worker = new Worker(queue, handlers, { client, wait: 2000, onError: () => undefined, ...options });
  const run = worker.run();
  try {
    return await f(client, worker, run);
  } finally {
    await worker.close(true);
    await run.catch(() => undefined);
    await client.close();
  }
}

const state = async (c, q, id) => (await c.manage.get(`/channel/${q}/message/${id}`)).Jobs[0];

test('a worker claims exactly the slots that are free', async () => {
  const q = unique('slots');
  let running = 0;
  let most = 0;
  const go = [];
  await working(q, { x: async () => {
    most = Math.max(most, ++running);
    await new Promise((r) => go.push(r));
    running--;
  } }, { concurrency: 3 }, async (c) => {
    await Promise.all(Array.from({ length: 9 }, () => c.enqueue(q, { task: 'x' })));
    await until(() => go.length >= 3);
    const consumer = await c.manage.consumer(q, q);
    assert.equal(consumer.InFlight, 3);
    let released = 0;
    await until(() => { while (go.length > 0) { go.shift()(); released++; } return released === 9 && running === 0; });
    assert.equal(most, 3);
  });
});

test('a lease lives while the event loop is blocked', async () => {
  const q = unique('block');
  let done = 0;
  await working(q, { block: () => { for (const end = Date.now() + 9000; Date.now() < end;); done++; } }, { lease: 3000 }, async (c) => {
    await c.manage.putChannel(q);
    await c.manage.putConsumer(q, q, { type: 'pull', timeout: '1s' });
    const { messageId } = await c.enqueue(q, { task: 'block' });
    await until(async () => (await state(c, q, messageId))?.Status === 'DELIVERED');
    const job = await state(c, q, messageId);
    assert.deepEqual([done, job.Attempts, job.LeasesLost ?? 0], [1, 1, 0]);
  });
});

test('a handler hears that its lease is lost, and its result is refused', async () => {
  const q = unique('lost');
  let reason;
  await working(q, { x: ({ job, signal }) => new Promise((resolve) => {
    signal.addEventListener('abort', () => { reason = signal.reason; resolve(); });
    void job.nack({ delay: 3_600_000 }); // somebody else moves the job
  }) }, { lease: 1000 }, async (c) => {
    const { messageId } = await c.enqueue(q, { task: 'x' });
    await until(() => reason);
    assert.ok(reason instanceof LeaseLost);
    assert.equal((await state(c, q, messageId)).Status, 'QUEUED');
  });
});

test('an error is tried again, a Reject is dead at once, a GiveBack is no attempt', async () => {
  const q = unique('ends');
  const seen = {};
  const note = (t) => (seen[t.task] = [...(seen[t.task] ?? []), t.attempt]);
  await working(q, {
    fail: (t) => { note(t); throw new Error('broken'); },
    reject: (t) => { note(t); throw new Reject('never again'); },
    later: (t) => { if (note(t).length < 2) throw new GiveBack('busy', 1000); },
  }, {}, async (c) => {
    await c.manage.putChannel(q);
    await c.manage.putConsumer(q, q, { type: 'pull', backoff: 'constant:1s', maxRetries: 1 });
    const [fail, reject, later] = await Promise.all(['fail', 'reject', 'later'].map((task) => c.enqueue(q, { task })));
    await until(async () => (await state(c, q, fail.messageId)).Status === 'DEAD');
    const dead = await state(c, q, reject.messageId);
    assert.deepEqual([dead.Status, dead.ReasonCode, dead.Reason], ['DEAD', 'by_consumer', 'never again']);
    await until(async () => (await state(c, q, later.messageId)).Status === 'DELIVERED');
    assert.deepEqual(seen, { fail: [1, 2], reject: [1], later: [1, 1] });
  });
});

test('a job of an unknown task goes back uncounted', async () => {
  const q = unique('unknown');
  const errors = [];
  await working(q, { known: () => undefined }, { onError: (e) => errors.push(e.message) }, async (c) => {
    const { messageId } = await c.enqueue(q, { task: 'new' });
    await until(async () => (await state(c, q, messageId)).GivenBack === 1);
    const job = await state(c, q, messageId);
    assert.deepEqual([job.Status, job.Attempts], ['QUEUED', 0]);
    assert.ok(Date.parse(job.NextAttemptAt) - Date.now() < 25_000);
    assert.match(errors.join(), /no handler for the task "new"/);
  });
});

test('close ends what runs and gives nothing up; a second close gives it back', async () => {
  const q = unique('close');
  let finish;
  await working(q, { x: () => new Promise((r) => (finish = r)) }, { concurrency: 1 }, async (c, w) => {
    const { messageId } = await c.enqueue(q, { task: 'x' });
    await until(() => finish);
    const closed = w.close();
    finish();
    await closed;
    assert.equal((await state(c, q, messageId)).Status, 'DELIVERED');
  });
  finish = undefined;
  let reason;
  await working(q, { x: ({ signal }) => new Promise((r) => { finish = r; signal.addEventListener('abort', () => (reason = signal.reason)); }) }, {}, async (c, w) => {
    const { messageId } = await c.enqueue(q, { task: 'x' });
    await until(() => finish);
    const closed = w.close();
    void w.close();
    await closed;
    assert.equal(reason.name, 'Stopped');
    const job = await state(c, q, messageId);
    assert.deepEqual([job.Status, job.GivenBack, job.Attempts ?? 0], ['QUEUED', 1, 0]);
  });
});

test('a claim that ends with its worker takes no job along', async () => {
  const q = unique('leave');
  await working(q, { x: () => undefined }, { wait: 20_000 }, async (c, w) => {
    await c.makeQueue(q);
    await until(async () => (await c.manage.get(`/channel/${q}/consumer/${q}/workers`)).Result.length === 1);
    const published = c.enqueue(q, { task: 'x' });
    await w.close();
    const { messageId } = await published;
    await until(async () => ['QUEUED', 'DELIVERED'].includes((await state(c, q, messageId))?.Status));
    assert.equal((await state(c, q, messageId)).LeasesLost ?? 0, 0);
  });
});

test('a wrong token ends the worker with the error', async () => {
  const q = unique('wrong');
  const c = new Client({ url });
  await c.makeQueue(q);
  await c.close();
  const w = new Worker(q, {}, { client: { url, consumerToken: 'wrong' } });
  await assert.rejects(w.run(), { code: 'consumer_token_mismatch' });
  await w.close();
});

test('a result goes along with the report; one that is too large for it is posted before', async () => {
  const q = unique('results');
  const results = { small: { sum: '42 €' }, large: 'x'.repeat(70_000), null: null };
  let posted = 0;
  await working(q, { x: ({ args }) => results[args[0]] }, {}, async (c) => {
    const post = c.respond.bind(c);
    c.respond = (...args) => { posted++; return post(...args); };
    await c.manage.putChannel(q);
    await c.manage.putConsumer(q, q, { type: 'pull', responses: 'store', responseMaxBytes: 100_000 });
    for (const [name, result] of Object.entries(results)) {
      const { messageId } = await c.enqueue(q, { task: 'x', args: [name] });
      const [got] = await c.responses(q, messageId, { wait: 60_000 });
      assert.equal(got.State, 'RESPONSE_RECEIVED_FROM_RECEIVER');
      assert.deepEqual(JSON.parse(got.Body), result);
      assert.equal(got.Headers['Content-Type'], 'application/json');
      await until(async () => (await state(c, q, messageId)).Status === 'DELIVERED');
    }
  });
  assert.equal(posted, 1);
});

test('a job is done where its queue keeps no results', async () => {
  const q = unique('silent');
  let done = 0;
  await working(q, { x: () => { done++; return 'nobody reads it'; } }, {}, async (c) => {
    await c.manage.putChannel(q);
    await c.manage.putConsumer(q, q, { type: 'pull', responses: 'off' });
    const all = await Promise.all(Array.from({ length: 5 }, () => c.enqueue(q, { task: 'x' })));
    for (const { messageId } of all) await until(async () => (await state(c, q, messageId))?.Status === 'DELIVERED');
  });
  assert.equal(done, 5);
});
