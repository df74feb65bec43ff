import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '../dist/esm/index.js';
import { Queue, QueueEvents, UnrecoverableError, Worker } from '../dist/esm/bullmq.js';
import { TestBroker } from '../dist/esm/testing.js';

/** A broker in memory with a queue and a worker, which are closed at the end of the test. */
function setup(t, processor, options = {}) {
  const broker = new TestBroker('2026-12-01T00:00:00Z');
  const queue = new Queue('q', { connection: broker });
  const worker = new Worker('q', processor, { connection: broker, ...options });
  t.after(async () => { await worker.close(true); await queue.close(); });
  return { broker, queue, worker };
}

test('a job of tomorrow is done at once, when the time is moved on', async (t) => {
  const seen = [];
  const { broker, queue } = setup(t, async (job) => { seen.push([job.name, new Date(broker.now()).toISOString()]); });
  await queue.add('tomorrow', {}, { delay: 24 * 3600 * 1000 });
  await queue.add('now', {});
  await broker.idle();
  assert.deepEqual(seen, [['now', '2026-12-01T00:00:00.000Z']]);
  await broker.advance('23h');
  assert.equal(seen.length, 1);
  await broker.advance('1h');
  assert.deepEqual(seen[1], ['tomorrow', '2026-12-02T00:00:00.000Z']);
});

test('attempts wait for their backoff, and the result is awaited', async (t) => {
  const seen = [];
  const { broker, queue } = setup(t, async (job) => {
    seen.push([job.attemptsMade, broker.now() - Date.parse('2026-12-01T00:00:00Z')]);
    if (job.name === 'final') throw new UnrecoverableError('no');
    if (job.attemptsMade < 2) throw new Error('not yet');
    return { fine: true };
  });
  const job = await queue.add('x', {}, { attempts: 3, backoff: { type: 'exponential', delay: 60_000 } });
  await broker.advance('1h');
  assert.deepEqual(seen, [[0, 0], [1, 60_000], [2, 180_000]]);
  assert.deepEqual(await job.waitUntilFinished(new QueueEvents('q', { connection: broker, autorun: false })), { fine: true });
  const final = await queue.add('final', {}, { attempts: 3 });
  await assert.rejects(final.waitUntilFinished(), { message: 'no' });
});

test('a scheduler runs through a week in no time', async (t) => {
  const seen = [];
  const { broker, queue } = setup(t, async (job) => { seen.push(`${job.id} ${new Date(broker.now()).toISOString()}`); });
  await queue.upsertJobScheduler('report', { pattern: '30 8 * * MON-FRI', tz: 'Europe/Warsaw' }, { name: 'report' });
  await broker.advance('7d');
  assert.deepEqual(seen, ['01', '02', '03', '04', '07'].map((d, i) => `report.${i + 1} 2026-12-${d}T07:30:00.000Z`));
  await queue.upsertJobScheduler('tick', { every: 3600_000 }, { name: 'tick' });
  seen.length = 0;
  await broker.advance('3h');
  assert.equal(seen.filter((s) => s.startsWith('tick')).length, 3);
});

test('a worker that dies loses its lease, and the next attempt comes', async (t) => {
  const broker = new TestBroker();
  const client = new Client({ transport: broker });
  t.after(() => client.close());
  await client.enqueue('q', { task: 'x' });
  const { jobs: [job] } = await client.claim('q');
  broker.loseLeases();
  await assert.rejects(job.ack(), { name: 'LeaseLost' });
  const { jobs: [again] } = await client.claim('q');
  assert.deepEqual([again.attempt, again.leasesLost], [2, 1]);
  await again.ack();
  assert.deepEqual(broker.messages('q').map((m) => m.state), ['DELIVERED']);
});

test('deduplication goes by the time of the broker', async (t) => {
  const { broker, queue } = setup(t, async () => undefined);
  const add = async () => (await queue.add('x', {}, { deduplication: { id: 'a', ttl: 60_000 } })).id;
  const first = await add();
  assert.equal(await add(), first);
  await broker.advance('2m');
  assert.notEqual(await add(), first);
});

test('what the test broker does not know is an error', async (t) => {
  const client = new Client({ transport: new TestBroker() });
  t.after(() => client.close());
  await assert.rejects(client.manage.get('/history'), /The test broker has no GET \/history/);
});
