import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, GiveBack, Retry, Worker as LowWorker } from '../dist/esm/index.js';
import { Queue, QueueEvents, UnrecoverableError, Worker } from '../dist/esm/bullmq.js';
import { TestBroker } from '../dist/esm/testing.js';
import { until } from './support.mjs';

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

test('a debounced job is the last one, and one after it is another job', async (t) => {
  const seen = [];
  const { broker, queue } = setup(t, async (job) => { seen.push([job.data, broker.now() - Date.parse('2026-12-01T00:00:00Z')]); });
  const add = (data) => queue.add('x', data, { delay: 5000, deduplication: { id: 'd', ttl: 5000, extend: true, replace: true } });
  const ids = new Set();
  for (let n = 0; n < 6; n++) {
    const job = await add(n);
    ids.add(job.id);
    assert.equal(job.data, n);
    await broker.advance('4s');
  }
  assert.equal(ids.size, 1); // however long it is extended
  await broker.advance('1s');
  assert.deepEqual(seen, [[5, 25_000]]);
  await add('next');
  await broker.advance('1m');
  assert.deepEqual(seen[1], ['next', 30_000]);
});

test('the ttl of a delayed job counts from when it was added', async (t) => {
  const seen = [];
  const { broker, queue } = setup(t, async (job) => { seen.push(job.data); });
  const add = (data) => queue.add('x', data, { delay: 10_000, deduplication: { id: 'd', ttl: 2000 } });
  await add(1);
  await broker.advance('1s');
  await add(2);
  await broker.advance('2s');
  await add(3);
  await broker.advance('1m');
  assert.deepEqual(seen, [1, 3]);
});

test('the errors of both shapes mean the same to both workers', async (t) => {
  const made = [];
  const { broker, queue } = setup(t, async (job) => {
    made.push([job.name, job.attemptsMade]);
    if (made.filter(([name]) => name === job.name).length > 1) return;
    throw job.name === 'back' ? new GiveBack('not now', 1000) : new Retry('again', 90_000);
  });
  await queue.add('back', {});
  const retried = await queue.add('retry', {}, { attempts: 2, backoff: 1000 });
  await broker.advance('80s');
  assert.deepEqual(made, [['back', 0], ['retry', 0], ['back', 0]]);
  await broker.advance('20s');
  assert.deepEqual([made[3], await retried.getState()], [['retry', 1], 'completed']);

  const client = new Client({ transport: broker });
  const low = new LowWorker('low', { final: () => { throw new UnrecoverableError('never'); } }, { client });
  const run = low.run();
  await client.enqueue('low', { task: 'final' });
  await broker.idle();
  assert.deepEqual(broker.messages('low').map((m) => [m.state, m.reason]), [['DEAD', 'never']]);
  await low.close();
  await run;
});

test('a job begins as often as maxStartedAttempts says', async (t) => {
  const made = [];
  const { broker, queue } = setup(t, async (job) => { made.push(job.attemptsMade); throw new Error('no'); }, { maxStartedAttempts: 2 });
  const job = await queue.add('x', {}, { attempts: 9 });
  await broker.advance('1h');
  assert.deepEqual(made, [0, 1]);
  assert.equal((await queue.getJob(job.id)).failedReason, 'job started more than allowable limit');
});

test('a job whose lease was lost is no more the worker\'s', async (t) => {
  let first;
  const runs = [];
  const { broker, queue, worker } = setup(t, async (job, token, signal) => {
    runs.push(job.id);
    if (first) return;
    first = job;
    await new Promise((go) => signal.addEventListener('abort', go));
    throw signal.reason;
  }, { lockDuration: 1000 });
  worker.on('error', () => undefined);
  const heard = [];
  worker.on('progress', (job, progress) => heard.push(progress));
  await queue.add('x', {});
  await until(() => first);
  await first.updateProgress('mine');
  broker.loseLeases();
  await until(() => runs.length === 2);
  await broker.idle();
  await first.updateProgress('lost');
  assert.deepEqual(heard, ['mine']);
});

test('logs of jobs are bounded', async (t) => {
  const { broker, queue } = setup(t, async (job) => {
    for (let n = 0; n < 5; n++) await job.log(`${n} ${'x'.repeat(100_000)}`);
  });
  const jobs = await queue.addBulk(Array.from({ length: 70 }, (_, n) => ({ name: 'x', data: n, opts: { keepLogs: 4 } })));
  await broker.idle();
  const logs = await Promise.all(jobs.map(async (j) => (await queue.getJobLogs(j.id)).logs));
  assert.deepEqual(logs.at(-1).map((line) => line[0]), ['1', '2', '3', '4']);
  assert.ok(logs.flat().reduce((n, line) => n + line.length, 0) <= 16 << 20);
  assert.deepEqual(logs[0], []); // the oldest are forgotten
});
