import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import Queue from '../dist/esm/bull.js';
import { unique, until, url } from './support.mjs';

function queueOf(t, name, options = {}) {
  const queue = new Queue(unique(name), { redis: { host: 'redis.example.org', port: 6379, url }, ...options });
  queue.on('error', () => undefined);
  t.after(() => queue.close());
  return queue;
}

// The shape of the quick start of Bull's guide.
test('jobs are added and processed, and their end is heard', async (t) => {
  const queue = queueOf(t, 'video');
  const heard = [];
  queue.on('completed', (job, result) => heard.push(['completed', job.id, result]));
  queue.on('failed', (job, err) => heard.push(['failed', job.id, err.message]));
  queue.on('progress', (job, progress) => heard.push(['progress', job.id, progress]));
  queue.process((job, done) => {
    if (job.data.video === 'bad') return done(new Error('error transcoding'));
    job.progress(42);
    done(null, { framerate: 29.5 });
  }).catch(() => undefined);
  const good = await queue.add({ video: 'good' });
  const bad = await queue.add({ video: 'bad' }, { attempts: 2, backoff: 100 });
  assert.deepEqual(await good.finished(), { framerate: 29.5 });
  await assert.rejects(bad.finished(), { message: 'error transcoding' });
  await until(() => heard.length >= 4);
  assert.deepEqual(heard.filter((e) => e[1] === good.id), [['progress', good.id, 42], ['completed', good.id, { framerate: 29.5 }]]);
  assert.deepEqual(heard.filter((e) => e[1] === bad.id), [['failed', bad.id, 'error transcoding'], ['failed', bad.id, 'error transcoding']]);
  assert.deepEqual(await queue.getJobCounts(), { waiting: 0, active: 0, completed: 1, failed: 1, delayed: 0, paused: 0 });
});

test('processors have names and concurrencies, and a name without one waits', async (t) => {
  const queue = queueOf(t, 'named');
  const seen = [];
  void queue.process('a', 2, async (job) => seen.push(['a', job.data]));
  void queue.process('b', async (job) => seen.push(['b', job.data]));
  await queue.add('a', 1);
  await queue.add('b', 2);
  const c = await queue.add('c', 3);
  await until(async () => seen.length === 2 && (await c.isDelayed()));
  assert.deepEqual(seen.sort(), [['a', 1], ['b', 2]]);
  assert.equal((await queue.getJob(c.id)).attemptsMade, 0);
});

test('a repeated job is a schedule of the broker, once', async (t) => {
  const queue = queueOf(t, 'repeat');
  const seen = [];
  void queue.process('tick', async (job) => seen.push(job.data));
  await Promise.all([1, 2, 3].map(() => queue.add('tick', { a: 1 }, { repeat: { every: 1000 } })));
  await queue.add('other', {}, { repeat: { cron: '15 3 * * *', tz: 'Europe/Warsaw' }, jobId: 7 });
  assert.deepEqual((await queue.getRepeatableJobs()).map((j) => j.name).sort(), ['other', 'tick']);
  await until(() => seen.length >= 2);
  assert.equal(await queue.removeRepeatable('tick', { every: 1000 }), true);
  assert.equal(await queue.removeRepeatable('other', { cron: '15 3 * * *', tz: 'Europe/Warsaw', jobId: 7 }), true);
  assert.deepEqual(await queue.getRepeatableJobs(), []);
});

test('events of all processes are heard, jobs are paused, and a discarded job is not tried again', async (t) => {
  const queue = queueOf(t, 'global');
  const heard = [];
  queue.on('global:completed', (id, result) => heard.push([id, result]));
  await queue.isReady();
  await queue.pause();
  const job = await queue.add({ x: 1 }, { jobId: 1 });
  let tries = 0;
  void queue.process(async (j) => {
    if (j.data.x === 2) { tries++; await j.discard(); throw new Error('no'); }
    return 'fine';
  });
  assert.equal(await queue.isPaused(), true);
  await queue.resume();
  await until(() => heard.length > 0);
  assert.deepEqual(heard, [['1', '"fine"']]);
  assert.equal(job.id, '1');
  const discarded = await queue.add({ x: 2 }, { attempts: 5 });
  await assert.rejects(discarded.finished(), { message: 'no' });
  assert.equal(tries, 1);
});

test('what is misspelt or not there is refused by name', async (t) => {
  const queue = queueOf(t, 'refused');
  await assert.rejects(queue.add({}, { attemps: 2 }), /did you mean "attempts"/);
  await assert.rejects(queue.add({}, { lifo: true }), /"lifo" is not supported/);
  await assert.rejects(queue.add({}, { repeat: { crn: '* * * * *' } }), /did you mean "cron"/);
  assert.throws(() => queue.process('/a/file.js'), /a processor in a file of its own is not supported/);
});

test('it is required as Bull is', () => {
  const Required = createRequire(import.meta.url)('../dist/cjs/bull.js');
  assert.equal(typeof Required, 'function');
  assert.equal(Required.Queue, Required);
});

test('what a limiter, settings and a repetition do not have here is refused by name', async (t) => {
  assert.throws(() => new Queue('x', { limiter: { max: 1, duration: 1000, groupKey: 'user' } }), /limiter has no option "groupKey"/);
  assert.throws(() => new Queue('x', { settings: { lockDuraton: 1 } }), /settings has no option "lockDuraton": did you mean "lockDuration"/);
  const queue = queueOf(t, 'repeats');
  await assert.rejects(queue.add({}, { repeat: { cron: '0 3 * * *', limit: 3 } }), /limit of a scheduler with a pattern is not supported/);
  await assert.rejects(queue.add({}, { repeat: { every: 1000, count: 3 } }), /count of a scheduler is not supported/);
});
