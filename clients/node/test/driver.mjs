// The driver of this client for the table of the hostile broker, internal/test/clients/hostile_test.go.
// It prints one JSON object a line. Usage: node driver.mjs worker|publish|batch|request OPTIONS
import { writeSync } from 'node:fs';
import { Client, Reject, Worker } from '../dist/esm/index.js';

const mode = process.argv[2];
const o = { concurrency: 4, lease: 3, wait: 1, timeout: 2, count: 10, tries: 5, queue: 'jobs', ...JSON.parse(process.argv[3] ?? '{}') };
const say = (line) => writeSync(1, JSON.stringify(line) + '\n');
const job = (i) => ({ task: 'ok', args: [i], kwargs: {}, meta: {} });
const before = active();
const client = new Client({ lease: o.lease * 1000, timeout: o.timeout * 1000, tries: o.tries });
let error = '';

const modes = { worker, publish, batch, request };
await modes[mode]();
await client.close();
say({ event: 'end', error, left: await left() });
process.exit(error ? 1 : 0);

/** What keeps the process alive, without stdio and what is ours. */
function active() {
  return process.getActiveResourcesInfo().filter((r) => !/^(PipeWrap|TTYWrap|SignalWrap|FSReqPromise|Immediate|CloseReq)$/.test(r)).length;
}

async function left() {
  let n = 0;
  for (let i = 0; i < 100; i++) {
    n = active() - before;
    if (n <= 0) return 0;
    await new Promise((go) => setTimeout(go, 10));
  }
  return n;
}

/** Waits, and ends early when the job is lost or given back: then it says so and throws why. */
function pass(task, ms) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      const lost = task.signal.reason?.name === 'LeaseLost';
      say({ event: lost ? 'lost' : 'stopped', id: task.id });
      reject(task.signal.reason);
    };
    const timer = setTimeout(() => {
      task.signal.removeEventListener('abort', end);
      resolve();
    }, ms);
    if (task.signal.aborted) end();
    else task.signal.addEventListener('abort', end, { once: true });
  });
}

async function worker() {
  const handler = (f) => async (task) => {
    say({ event: 'start', task: task.task, id: task.id, attempt: task.attempt });
    await f(task);
  };
  const done = (task) => say({ event: 'done', id: task.id });
  const w = new Worker(o.queue, {
    ok: handler(done),
    sleep: handler(async (t) => { await pass(t, t.args[0]); done(t); }),
    hold: handler(async (t) => { await pass(t, 60_000); done(t); }),
    block: handler((t) => {
      for (const end = performance.now() + t.args[0]; performance.now() < end; );
      done(t);
    }),
    fail: handler((t) => {
      say({ event: 'failed', id: t.id });
      throw new Error('broken on purpose');
    }),
    reject: handler((t) => {
      say({ event: 'failed', id: t.id });
      throw new Reject('never again');
    }),
  }, { client, concurrency: o.concurrency, wait: o.wait * 1000, onError: (e) => console.error(e.message) });
  let closing;
  const stop = () => (closing = w.close());
  process.on('SIGTERM', stop);
  say({ event: 'ready' });
  try {
    await w.run();
  } catch (e) {
    error = e.message;
  }
  await closing;
  process.off('SIGTERM', stop);
}

async function publish() {
  for (let i = 0; i < o.count; i++) {
    const line = { event: 'published', id: `m-${i}`, error: '', code: '', status: 0 };
    try {
      line.status = (await client.enqueue(o.queue, job(i), { messageId: `m-${i}` })).status;
    } catch (e) {
      Object.assign(line, { error: e.message, code: e.code, status: e.status });
    }
    say(line);
  }
}

async function batch() {
  const messages = Array.from({ length: o.count }, (_, i) => ({ messageId: `m-${i}`, task: 'ok', payload: job(i) }));
  for (const r of await client.publishMany(o.queue, messages)) {
    say({ event: 'published', id: r.messageId, error: r.error?.message ?? '', code: r.error?.code ?? '', status: r.status });
  }
}

async function request() {
  const line = { event: 'answer', body: '', error: '', code: '', status: 0 };
  try {
    const a = await client.request(o.queue, 'ask', { messageId: 'm-0' });
    Object.assign(line, { body: a.text, status: a.status });
  } catch (e) {
    Object.assign(line, { error: e.message, code: e.code, status: e.status });
  }
  say(line);
}
