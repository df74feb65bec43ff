// The jobs that bench/peers compares clients with: one program for BullMQ and for penstock/bullmq.
//   node jobs.mjs worker SLOTS | publish KIND COUNT MS | ask COUNT SECONDS
// A producer prints what was acknowledged as JSON.
import { openSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const { JOBS_CLIENT, JOBS_BROKER, JOBS_QUEUE, JOBS_FILE, JOBS_LEASE } = process.env;
const { Queue, QueueEvents, Worker } = await import(JOBS_CLIENT);
const address = new URL(JOBS_BROKER);
const connection = address.protocol === 'redis:'
  ? {
    host: address.hostname, port: Number(address.port), db: Number(address.pathname.slice(1)), maxRetriesPerRequest: null,
  }
  : { url: JOBS_BROKER };
const publishers = 32;

const file = openSync(JOBS_FILE, 'a');
// One write of a line: it is in the file, whatever kills this process then.
const done = (kind, n) => writeSync(file, `${kind} ${n} ${process.hrtime.bigint()}\n`);

function worker(slots) {
  const lease = Number(JOBS_LEASE) * 1000;
  const w = new Worker(JOBS_QUEUE, async (job) => {
    const { kind, n, ms } = job.data;
    if (ms > 0) await sleep(ms);
    done(kind, n);
    if (kind === 'ask') return n;
  }, {
    connection, concurrency: Number(slots), lockDuration: lease, stalledInterval: lease, maxStalledCount: 10,
    removeOnComplete: { count: 1000 },
  });
  w.on('error', (e) => console.error(e.message));
  process.on('SIGTERM', () => w.close().then(() => process.exit(0)));
}

async function publish(kind, count, ms) {
  const queue = new Queue(JOBS_QUEUE, { connection });
  const [acked, failed] = [[], []];
  let next = 0;
  const run = async () => {
    for (let n = next++; n < Number(count); n = next++) {
      try {
        await queue.add('work', { kind, n, ms: Number(ms) });
        acked.push(n);
      } catch (e) {
        failed.push(e.message);
      }
    }
  };
  // Connections, and with Penstock the queue, are made before the clock runs.
  await queue.add('work', { kind: 'warm', n: 0, ms: 0 });
  const begin = performance.now();
  await Promise.all(Array.from({ length: publishers }, run));
  const seconds = (performance.now() - begin) / 1000;
  await queue.close();
  return { acked, failed: failed.length, error: failed[0] ?? '', seconds };
}

async function ask(count, seconds) {
  const queue = new Queue(JOBS_QUEUE, { connection });
  const events = new QueueEvents(JOBS_QUEUE, { connection });
  await events.waitUntilReady();
  const [acked, failed, latencies] = [[], [], []];
  const end = performance.now() + Number(seconds) * 1000;
  for (let n = -5; n < Number(count) && (n <= 0 || performance.now() < end); n++) { // the first five only make connections
    const begin = performance.now();
    try {
      const job = await queue.add('ask', { kind: 'ask', n, ms: 0 });
      await job.waitUntilFinished(events, 10_000);
    } catch (e) {
      failed.push(e.message);
      continue;
    }
    if (n < 0) continue;
    acked.push(n);
    latencies.push(performance.now() - begin);
  }
  await events.close();
  await queue.close();
  return { acked, failed: failed.length, error: failed[0] ?? '', latencies };
}

const [command, ...given] = process.argv.slice(2);
if (command === 'worker') worker(...given);
else {
  console.log(JSON.stringify(await (command === 'publish' ? publish : ask)(...given)));
  process.exit(0);
}
