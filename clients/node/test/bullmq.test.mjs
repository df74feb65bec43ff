import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client } from '../dist/esm/index.js';
import { HttpTransport } from '../dist/esm/transport.js';
import {
  DelayedError, FlowProducer, Job, Queue, QueueEvents, RateLimitError, UnrecoverableError, Worker,
} from '../dist/esm/bullmq.js';
import { unique, until, url } from './support.mjs';

const connection = { url, host: 'redis.example.org', port: 6379 };

/** A queue with its name; what is made with it is closed at the end of the test. */
function queueOf(t, name, options = {}) {
  const made = [];
  const queue = new Queue(unique(name), { connection, ...options });
  t.after(async () => { for (const one of made.reverse()) await one.close(true); await queue.close(); });
  const worker = (processor, o = {}) => {
    const w = new Worker(queue.name, processor, { connection, ...o });
    if (!o.quiet) w.on('error', () => undefined);
    made.push(w);
    return w;
  };
  const events = () => {
    const e = new QueueEvents(queue.name, { connection, pollInterval: 50 });
    made.push(e);
    return e;
  };
  return { queue, worker, events };
}

/** The next event, with its arguments. One that does not come fails the test by its name. */
const once = (emitter, event) => new Promise((resolve, reject) => {
  const late = setTimeout(() => reject(new Error(`the event ${event} did not come`)), 300_000);
  emitter.once(event, (...args) => { clearTimeout(late); resolve(args); });
});

// The shape of the quick start of BullMQ's guide.
test('jobs are added, processed, and their end is heard', async (t) => {
  const { queue, worker, events } = queueOf(t, 'paint');
  const queueEvents = events();
  const heard = [];
  queueEvents.on('waiting', ({ jobId }) => heard.push(['waiting', jobId]));
  queueEvents.on('completed', ({ jobId, returnvalue }) => heard.push(['completed', jobId, returnvalue]));
  queueEvents.on('failed', ({ jobId, failedReason }) => heard.push(['failed', jobId, failedReason]));
  await queueEvents.waitUntilReady();
  const car = await queue.add('cars', { color: 'blue' });
  const bad = await queue.add('cars', { color: 'mauve' });
  const w = worker(async (job) => {
    if (job.name !== 'cars') throw new Error('what is this?');
    if (job.data.color === 'mauve') throw new Error('no mauve left');
    return { painted: job.data.color };
  });
  const local = [];
  w.on('active', (job) => local.push(['active', job.id]));
  w.on('completed', (job, result) => local.push(['completed', job.id, result, job.returnvalue]));
  w.on('failed', (job, err) => local.push(['failed', job.id, err.message, job.attemptsMade]));
  await once(w, 'drained');
  await until(() => heard.length >= 4, 'the events of the queue');
  const mine = (list, id) => list.filter((e) => e[1] === id);
  assert.deepEqual(mine(local, car.id), [['active', car.id], ['completed', car.id, { painted: 'blue' }, { painted: 'blue' }]]);
  assert.deepEqual(mine(local, bad.id), [['active', bad.id], ['failed', bad.id, 'no mauve left', 1]]);
  assert.deepEqual(mine(heard, car.id), [['waiting', car.id], ['completed', car.id, { painted: 'blue' }]]);
  assert.deepEqual(mine(heard, bad.id), [['waiting', bad.id], ['failed', bad.id, 'no mauve left']]);
  const found = await Job.fromId(queue, car.id);
  assert.deepEqual([await found.getState(), found.returnvalue, found.name], ['completed', { painted: 'blue' }, 'cars']);
  const failed = await queue.getJob(bad.id);
  assert.deepEqual([await failed.getState(), failed.failedReason, failed.attemptsMade], ['failed', 'no mauve left', 1]);
});

test('a job is the JSON that all languages read, with its name in X-Broker-Task', async (t) => {
  const { queue } = queueOf(t, 'json');
  const job = await queue.add('resize', { a: 1 });
  const message = await queue.client.manage.get(`/channel/${queue.name}/message/${job.id}`);
  assert.equal(message.Payload, '{"task":"resize","args":[{"a":1}],"kwargs":{},"meta":{}}');
  assert.equal(message.Headers['X-Broker-Task'], 'resize');
});

test('a worker serves a job of another language', async (t) => {
  const { queue, worker } = queueOf(t, 'other');
  const seen = [];
  worker(async (job) => { seen.push([job.name, job.data, job.args, job.kwargs]); });
  await queue.client.enqueue(queue.name, { task: 'resize', args: ['cat.jpg', 320], kwargs: { format: 'webp' } });
  await until(() => seen.length > 0);
  assert.deepEqual(seen, [['resize', { args: ['cat.jpg', 320], kwargs: { format: 'webp' } }, ['cat.jpg', 320], { format: 'webp' }]]);
});

test('the result is awaited, before and after the job has ended', async (t) => {
  const { queue, worker, events } = queueOf(t, 'wait');
  const queueEvents = events();
  worker(async (job) => {
    if (job.data === 'bad') throw new Error('it is bad');
    return job.data === 'nothing' ? undefined : { is: job.data };
  }, { concurrency: 4 });
  const [good, nothing, bad] = await queue.addBulk(['good', 'nothing', 'bad'].map((data) => ({ name: 'x', data })));
  assert.deepEqual(await good.waitUntilFinished(queueEvents), { is: 'good' });
  assert.deepEqual(await good.waitUntilFinished(queueEvents), { is: 'good' });
  assert.equal(await nothing.waitUntilFinished(queueEvents), null);
  await assert.rejects(bad.waitUntilFinished(queueEvents), { message: 'it is bad' });
  const later = await queue.add('x', 'later', { delay: 3_600_000 });
  await assert.rejects(later.waitUntilFinished(queueEvents, 100), /Job wait x timed out before finishing, no finish notification arrived after 100ms/);
});

test('attempts and backoff: fixed, exponential, custom; UnrecoverableError ends at once', async (t) => {
  const { queue, worker } = queueOf(t, 'attempts');
  const seen = {};
  const asked = [];
  const w = worker(async (job) => {
    (seen[job.name] ??= []).push(job.attemptsMade);
    if (job.name === 'final') throw new UnrecoverableError('no way');
    throw new Error(`attempt ${job.attemptsMade}`);
  }, { concurrency: 5, settings: { backoffStrategy: (made, type, err, job) => { asked.push([made, type, err.message, job.name]); return made > 1 ? -1 : 100; } } });
  const failures = [];
  w.on('failed', (job, err) => failures.push(`${job.name} ${err.message}`));
  const jobs = await queue.addBulk([
    { name: 'fixed', data: 1, opts: { attempts: 3, backoff: 500 } },
    { name: 'exponential', data: 1, opts: { attempts: 2, backoff: { type: 'exponential', delay: 300 } } },
    { name: 'custom', data: 1, opts: { attempts: 9, backoff: { type: 'mine' } } },
    { name: 'final', data: 1, opts: { attempts: 5 } },
    { name: 'once', data: 1 },
  ]);
  await until(async () => (await Promise.all(jobs.map((j) => j.getState()))).every((s) => s === 'failed'), 'the end of all attempts');
  assert.deepEqual(seen, { fixed: [0, 1, 2], exponential: [0, 1], custom: [0, 1], final: [0], once: [0] });
  assert.deepEqual(asked, [[1, 'mine', 'attempt 0', 'custom'], [2, 'mine', 'attempt 1', 'custom']]);
  await until(() => failures.length === 9);
  // The queue bears as many attempts as its jobs ask for.
  assert.ok(Number((await queue.client.manage.consumer(queue.name, queue.name)).Policy.MaxRetries) >= 8);
  const failed = await queue.getFailed();
  assert.equal(failed.find((j) => j.name === 'final').failedReason, 'no way');
});

test('jobs without priority come first, then 1, 2 and so on', async (t) => {
  const { queue, worker } = queueOf(t, 'priority');
  await queue.addBulk([{ name: 'c', data: 0, opts: { priority: 10 } }, { name: 'b', data: 0, opts: { priority: 2 } }, { name: 'a', data: 0 }, { name: 'aa', data: 0 }]);
  assert.deepEqual(await queue.getJobCounts('waiting', 'prioritized'), { waiting: 2, prioritized: 2 });
  const order = [];
  worker(async (job) => order.push(job.name));
  await until(() => order.length === 4);
  assert.deepEqual(order, ['a', 'aa', 'b', 'c']);
});

test('a delayed job comes at its time, and is promoted and changed before', async (t) => {
  const { queue, worker } = queueOf(t, 'delay');
  const seen = [];
  worker(async (job) => { seen.push([job.name, Date.now()]); });
  const began = Date.now();
  await queue.add('soon', {}, { delay: 1500 });
  const later = await queue.add('later', {}, { delay: 3_600_000 });
  assert.equal(await later.getState(), 'delayed');
  assert.deepEqual((await queue.getDelayed()).map((j) => j.name).sort(), ['later', 'soon']);
  await until(() => seen.length === 1);
  assert.ok(seen[0][1] - began >= 1400, `${seen[0][1] - began}`);
  assert.equal((await queue.getJobCounts('delayed')).delayed, 1);
  await later.promote();
  await until(() => seen.length === 2);
});

test('a delayed job knows when it was added, and its removal ends the wait for it', async (t) => {
  const { queue, events } = queueOf(t, 'removed');
  const before = Date.now();
  const job = await queue.add('x', {}, { delay: 3_600_000 });
  const found = await queue.getJob(job.id);
  assert.ok(found.timestamp >= before && found.timestamp <= Date.now(), `${found.timestamp}`);
  assert.deepEqual(await queue.clean(60_000, 10, 'delayed'), []);
  const waited = assert.rejects(job.waitUntilFinished(events()), /Missing key for job/);
  await new Promise((go) => setTimeout(go, 500));
  await job.remove();
  await waited;
});

test('a jobId is added once, whatever its data', async (t) => {
  const { queue } = queueOf(t, 'jobid');
  const first = await queue.add('x', { n: 1 }, { jobId: 'order-1' });
  const again = await queue.add('x', { n: 1 }, { jobId: 'order-1' });
  const other = await queue.add('x', { n: 2 }, { jobId: 'order-1' });
  const [bulk] = await queue.addBulk([{ name: 'x', data: { n: 3 }, opts: { jobId: 'order-1' } }]);
  assert.deepEqual([first.id, again.id, other.id, bulk.id, other.data, bulk.data], ['order-1', 'order-1', 'order-1', 'order-1', { n: 1 }, { n: 1 }]);
  assert.equal(await queue.count(), 1);
});

/** A queue whose requests pass through `on`, which sees each POST of a message before it is sent. */
function watched(t, on) {
  const real = new HttpTransport(new URL(url), 16);
  const transport = {
    send: async (x) => {
      const door = x.path.split('/').pop();
      if (x.method === 'POST' && (door === 'broadcast' || door === 'batch')) await on(door, x);
      return real.send(x);
    },
    close: () => real.close(),
  };
  const queue = new Queue(unique('watched'), { connection: { transport } });
  t.after(() => queue.close());
  return queue;
}

test('jobs that are added together go in one request, each with its own ID, answer and error', async (t) => {
  const sent = [];
  const queue = watched(t, (door) => { sent.push(door); });
  await queue.add('alone', 0);
  assert.deepEqual(sent.splice(0), ['broadcast']);
  const circle = {};
  circle.circle = circle;
  const data = { n: 2 };
  const added = Promise.allSettled([
    queue.add('a', 1), queue.add('b', data, { jobId: 'mine' }), queue.add('b', { n: 3 }, { jobId: 'mine' }), queue.add('circle', circle),
    queue.add('late', 4, { delay: 20 * 366 * 86_400_000 }), queue.add('d', 5, { delay: 3_600_000 }), queue.add('p', 'x'.repeat(300_000), { priority: 2 }),
  ]);
  data.n = 'changed after the call';
  const [a, b, again, circular, late, d, p] = await added;
  // The large one goes alone.
  assert.deepEqual(sent, ['batch', 'broadcast']);
  assert.deepEqual([circular.reason.name, late.reason.code], ['TypeError', 'invalid_schedule']);
  assert.deepEqual([b.value.id, again.value.id, again.value.data], ['mine', 'mine', { n: 2 }]);
  assert.equal((await queue.getJob('mine')).data.n, 2);
  assert.equal(new Set([a, b, d, p].map((r) => r.value.id)).size, 4);
  assert.deepEqual(await Promise.all([a, b, d, p].map((r) => r.value.getState())), ['waiting', 'waiting', 'delayed', 'prioritized']);
});

test('a job is not held up by others whose request hangs', async (t) => {
  let release;
  const hang = new Promise((go) => (release = go));
  let n = 0;
  const queue = watched(t, () => (n++ === 0 ? hang : undefined));
  await queue.waitUntilReady();
  const first = queue.add('x', 1);
  await until(() => n === 1);
  const second = await queue.add('x', 2);
  assert.equal(await second.getState(), 'waiting');
  release();
  assert.equal(await (await first).getState(), 'waiting');
});

test('a listener that throws is told as an error, and harms no job', async (t) => {
  const { queue, worker } = queueOf(t, 'throws');
  const w = worker(async (job) => job.data);
  const errors = [];
  w.on('error', (e) => errors.push(e.message));
  w.on('active', () => { throw new Error('active broke'); });
  w.on('completed', () => { throw new Error('completed broke'); });
  const jobs = await queue.addBulk([1, 2].map((data) => ({ name: 'x', data })));
  await until(async () => (await Promise.all(jobs.map((j) => j.getState()))).every((s) => s === 'completed'));
  await until(() => errors.length >= 4);
  assert.deepEqual(errors.sort(), ['active broke', 'active broke', 'completed broke', 'completed broke']);
});

test('deduplication holds a job off until the first has ended, or for its ttl', async (t) => {
  const { queue, worker } = queueOf(t, 'dedup');
  const a = await queue.add('x', 1, { deduplication: { id: 'a' } });
  const b = await queue.add('x', 2, { deduplication: { id: 'a' } });
  assert.equal(b.id, a.id);
  const c = await queue.add('x', 3, { deduplication: { id: 'c', ttl: 1500 } });
  assert.equal((await queue.add('x', 4, { deduplication: { id: 'c', ttl: 1500 } })).id, c.id);
  worker(async () => undefined);
  await until(async () => (await a.getState()) === 'completed' && (await c.getState()) === 'completed');
  assert.notEqual((await queue.add('x', 5, { deduplication: { id: 'a' } })).id, a.id);
  await until(async () => (await queue.add('x', 6, { deduplication: { id: 'c', ttl: 1500 } })).id !== c.id);
  const d = await queue.add('x', 'old', { delay: 3_600_000, deduplication: { id: 'd', replace: true } });
  const e = await queue.add('x', 'new', { delay: 3_600_000, deduplication: { id: 'd', replace: true } });
  assert.deepEqual([e.id, (await queue.getJob(d.id)).data], [d.id, 'new']);
  // Those that come at the same time are one.
  const many = await Promise.all(Array.from({ length: 8 }, (_, n) => queue.add('x', n, { delay: 60_000, deduplication: { id: 'many' } })));
  assert.equal(new Set(many.map((j) => j.id)).size, 1);
});

test('a limiter holds over all workers of the queue', async (t) => {
  const { queue, worker } = queueOf(t, 'limiter');
  const times = [];
  const limiter = { max: 2, duration: 1000 };
  const processor = async () => times.push(performance.now());
  const began = performance.now();
  worker(processor, { limiter, concurrency: 10 });
  worker(processor, { limiter, concurrency: 10 });
  await queue.addBulk(Array.from({ length: 6 }, (_, i) => ({ name: 'x', data: i })));
  await until(() => times.length === 6);
  // A job may reach its worker late, but none is early.
  times.forEach((at, i) => assert.ok(at - began >= 1000 * Math.floor(i / 2), `${began}: ${times}`));
  assert.equal((await queue.client.manage.consumer(queue.name, queue.name)).Policy.RateLimit, '2/1s');
});

test('a job scheduler is made once, changed and removed', async (t) => {
  const { queue, worker } = queueOf(t, 'scheduler');
  const seen = [];
  worker(async (job) => { seen.push([job.name, job.data, job.repeatJobKey, job.id]); });
  const many = Array.from({ length: 6 }, () => new Queue(queue.name, { connection }));
  t.after(() => Promise.all(many.map((q) => q.close())));
  const jobs = await Promise.all(many.map((q) => q.upsertJobScheduler('tick', { every: 1000 }, { name: 'ticked', data: { a: 1 } })));
  assert.deepEqual([...new Set(jobs.map((j) => `${j.id} ${j.name}`))], ['tick ticked']);
  await until(() => seen.length >= 2);
  assert.deepEqual(seen.map((s) => s.slice(0, 3)), seen.map(() => ['ticked', { a: 1 }, 'tick']));
  assert.equal(new Set(seen.map((s) => s[3])).size, seen.length);
  const list = await queue.getJobSchedulers();
  assert.deepEqual(list.map(({ id, name, every, template }) => ({ id, name, every, template })), [{ id: 'tick', name: 'ticked', every: 1000, template: { data: { a: 1 }, opts: {} } }]);
  await queue.upsertJobScheduler('tick', { pattern: '0 15 3 * * *', tz: 'Europe/Warsaw' }, { name: 'other' });
  const [changed] = await queue.getJobSchedulers();
  assert.deepEqual([changed.pattern, changed.tz, changed.name], ['0 15 3 * * *', 'Europe/Warsaw', 'other']);
  assert.equal(new Date(changed.next).getUTCMinutes(), 15);
  assert.equal(await queue.removeJobScheduler('tick'), true);
  assert.equal(await queue.removeJobScheduler('tick'), false);
  assert.deepEqual(await queue.getJobSchedulers(), []);
});

test('a job scheduler whose first time is past when the broker reads it begins later', async (t) => {
  let n = 0;
  const queue = watched(t, () => (n++ === 0 ? new Promise((go) => setTimeout(go, 1200)) : undefined));
  const job = await queue.upsertJobScheduler('tick', { every: 3_600_000 }, { name: 'late' });
  assert.deepEqual([job.name, n, (await queue.getJobSchedulersCount())], ['late', 2, 1]);
});

test('the end of a job scheduler is kept, and changed; what no schedule can is refused by name', async (t) => {
  const { queue } = queueOf(t, 'ends');
  const end = Date.now() + 3_600_000;
  const upsert = (repeat) => queue.upsertJobScheduler('s', { every: 60_000, ...repeat }, { name: 'x' });
  const recurrence = async () => (await queue.client.manage.get(`/channel/${queue.name}/scheduled-message/s`)).recurrence;
  await upsert({ endDate: end });
  const first = await recurrence();
  assert.match(first, /^R(59|60)\//);
  await upsert({ endDate: new Date(end) });
  assert.equal(await recurrence(), first); // the same end: its rhythm goes on
  await upsert({ endDate: end + 3_600_000 });
  assert.match(await recurrence(), /^R(119|120)\//);
  assert.equal((await queue.getJobScheduler('s')).endDate, end + 3_600_000);
  await upsert({ endDate: end + 3_600_000, limit: 5 });
  assert.match(await recurrence(), /^R5\//);
  const start = Date.now() + 7_200_000;
  await upsert({ startDate: start });
  assert.match(await recurrence(), new RegExp(`^R/${new Date(start).toISOString()}/`));
  await upsert({ startDate: start + 1000 });
  assert.match(await recurrence(), new RegExp(`^R/${new Date(start + 1000).toISOString()}/`));
  const later = await recurrence();
  await upsert({ startDate: Date.now() - 1000 }); // it has begun, as far as this caller knows
  assert.equal(await recurrence(), later);
  for (const [name, value] of [['limit', 3], ['endDate', end], ['offset', 10]]) {
    await assert.rejects(upsert({ every: undefined, pattern: '0 3 * * *', [name]: value }), new RegExp(`${name} of a scheduler with a pattern is not supported: cron fields`));
  }
  await assert.rejects(upsert({ count: 2 }), /count of a scheduler is not supported/);
  await assert.rejects(upsert({ limit: 0 }), /limit of a scheduler must be a whole number from 1/);
});

test('DelayedError and RateLimitError give a job back, and count no attempt', async (t) => {
  const { queue, worker } = queueOf(t, 'back');
  const seen = [];
  const w = worker(async (job, token) => {
    seen.push([job.name, job.attemptsMade]);
    const times = seen.filter(([name]) => name === job.name).length;
    if (job.name === 'later' && times === 1) { await job.moveToDelayed(Date.now() + 1000, token); throw new DelayedError(); }
    if (job.name === 'limited' && times === 1) { await w.rateLimit(500); throw Worker.RateLimitError(); }
  });
  const [later, limited] = await queue.addBulk([{ name: 'later', data: 0 }, { name: 'limited', data: 0 }]);
  await until(async () => (await later.getState()) === 'completed' && (await limited.getState()) === 'completed');
  assert.deepEqual(seen.sort(), [['later', 0], ['later', 0], ['limited', 0], ['limited', 0]]);
  assert.ok(Worker.RateLimitError() instanceof RateLimitError);
});

test('progress and logs reach the listeners', async (t) => {
  const { queue, worker, events } = queueOf(t, 'progress');
  const e = events();
  const w = worker(async (job) => { await job.updateProgress(42); await job.updateProgress({ half: true }); assert.equal(await job.log('a line'), 1); });
  const heard = [];
  w.on('progress', (job, progress) => heard.push(['worker', progress]));
  e.on('progress', ({ data }) => heard.push(['events', data]));
  queue.on('progress', (job, progress) => heard.push(['queue', progress]));
  const job = await queue.add('x', {});
  await until(async () => (await job.getState()) === 'completed');
  assert.deepEqual(heard.sort(), [['events', 42], ['events', { half: true }], ['queue', 42], ['queue', { half: true }], ['worker', 42], ['worker', { half: true }]].sort());
  assert.deepEqual((await queue.getJobLogs(job.id)).logs, ['a line']);
  assert.deepEqual((await queue.getJob(job.id)).progress, { half: true });
});

test('pause, resume, drain, remove, retry and clean', async (t) => {
  const { queue, worker } = queueOf(t, 'levers');
  await queue.pause();
  assert.equal(await queue.isPaused(), true);
  const a = await queue.add('a', {});
  const b = await queue.add('b', {});
  await queue.add('c', {}, { delay: 3_600_000 });
  assert.deepEqual(await queue.getJobCounts('waiting', 'paused', 'delayed'), { waiting: 0, paused: 2, delayed: 1 });
  await queue.resume();
  assert.equal(await queue.remove(a.id), 1);
  assert.equal(await queue.remove('not-there'), 0);
  assert.deepEqual((await queue.getJobs(['waiting'])).map((j) => j.name), ['b']);
  await queue.drain(true);
  assert.equal(await queue.count(), 0);
  assert.equal(await b.getState(), 'unknown');
  let broken = true;
  worker(async () => { if (broken) throw new Error('broken'); });
  const jobs = await queue.addBulk([{ name: 'd', data: 1 }, { name: 'e', data: 1 }]);
  await until(async () => (await queue.getFailedCount()) === 2);
  broken = false;
  await jobs[0].retry();
  await until(async () => (await jobs[0].getState()) === 'completed');
  assert.deepEqual(await queue.clean(0, 10, 'failed'), [jobs[1].id]);
  assert.equal(await queue.getFailedCount(), 0);
});

test('a worker that is closed ends its jobs and takes no more', async (t) => {
  const { queue, worker } = queueOf(t, 'close');
  let finish;
  const w = worker(() => new Promise((r) => (finish = r)));
  const job = await queue.add('x', {});
  await until(() => finish);
  const closed = w.close();
  finish('done');
  await closed;
  assert.deepEqual([await job.getState(), w.isRunning()], ['completed', false]);
});

test('jobs are fetched by hand', async (t) => {
  const { queue, worker } = queueOf(t, 'hand');
  await queue.addBulk([{ name: 'x', data: 1 }, { name: 'x', data: 2, opts: { attempts: 1 } }]);
  const w = worker(null);
  const one = await w.getNextJob('token');
  await one.moveToCompleted('fine', 'token', false);
  const two = await w.getNextJob('token');
  await two.moveToFailed(new Error('not fine'), 'token', false);
  assert.equal(await w.getNextJob('token', { block: false }), undefined);
  assert.deepEqual([(await queue.getJob(one.id)).returnvalue, (await queue.getJob(two.id)).failedReason], ['fine', 'not fine']);
});

test('what is misspelt or not there is refused by name', async (t) => {
  const { queue } = queueOf(t, 'refused');
  await assert.rejects(queue.add('x', {}, { attemps: 3 }), /a job has no option "attemps": did you mean "attempts"\?/);
  await assert.rejects(queue.add('x', {}, { lifo: true }), /the option "lifo" is not supported/);
  await assert.rejects(queue.add('x', {}, { parent: { id: '1', queue: 'q' } }), /"parent" is not supported/);
  await assert.rejects(queue.add('x', {}, { repeat: { every: 1000 } }), /upsertJobScheduler/);
  await assert.rejects(queue.add('x', {}, { deduplication: { id: 'a', ttl: 1000, extend: true } }), /extend of deduplication without replace is not supported: a stored/);
  await assert.rejects(queue.add('x', {}, { deduplication: { id: 'a', replace: true, extend: true } }), /extend of deduplication needs a ttl/);
  await assert.rejects(queue.add('x', {}, { deduplication: { id: 'a', keepLastIfActive: true } }), /keepLastIfActive of deduplication is not supported/);
  await assert.rejects(queue.add('x', {}, { deduplication: { id: 'a', ttl: '5s' } }), /ttl of deduplication must be/);
  await assert.rejects(queue.add('x', {}, { backoff: { typ: 'fixed' } }), /did you mean "type"/);
  await assert.rejects(queue.addBulk([{ name: 'x', data: 1, opts: { priorty: 1 } }]), /did you mean "priority"/);
  await assert.rejects(queue.upsertJobScheduler('s', { evry: 1000 }), /did you mean "every"/);
  await assert.rejects(queue.upsertJobScheduler('s', { pattern: '5 * * * * *' }), /seconds must be 0/);
  await assert.rejects(queue.obliterate(), /obliterate is not supported/);
  assert.throws(() => new FlowProducer({ connection }), /FlowProducer is not supported/);
  assert.throws(() => new Worker(queue.name, '/a/file.js', { connection }), /a processor in a file of its own is not supported/);
  assert.throws(() => new Worker(queue.name, async () => 1, { connection, concurency: 2 }), /did you mean "concurrency"/);
  assert.equal(await queue.count(), 0);
});

test('a stalled job is told, and does not cost an attempt', async (t) => {
  const { queue, worker } = queueOf(t, 'stalled');
  const job = await queue.add('x', {}, { attempts: 1 });
  const client = new Client({ url });
  assert.equal((await client.claim(queue.name, { lease: 1000, wait: 20_000 })).jobs.length, 1); // and this worker dies
  await client.close();
  const made = [];
  const w = worker(async (j) => made.push(j.attemptsMade));
  const [id] = await once(w, 'stalled');
  await until(async () => (await job.getState()) === 'completed');
  assert.deepEqual([id, made], [job.id, [0]]);
});
