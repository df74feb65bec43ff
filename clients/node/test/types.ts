// A program of a user in strict TypeScript. It is compiled, and never run.
import { Client, LeaseLost, Reject, Worker, type Task } from 'penstock';

import Bull from 'penstock/bull';
import { Queue, QueueEvents, UnrecoverableError, Worker as BullWorker, type Job } from 'penstock/bullmq';
import { consumer, TooManyRequests } from 'penstock/express';
import penstock from 'penstock/fastify';

interface Paint {
  color: string;
}

export const queue = new Queue<Paint, string>('paint', { connection: { url: 'http://127.0.0.1:8080' } });
export const painter = new BullWorker<Paint, string>('paint', async (job: Job<Paint, string>) => {
  if (job.data.color === '') throw new UnrecoverableError('no color');
  await job.updateProgress(50);
  return job.data.color;
}, { concurrency: 4, limiter: { max: 10, duration: 1000 }, lockDuration: 5000 });
export async function paint(): Promise<string> {
  const job = await queue.add('cars', { color: 'blue' }, { attempts: 3, backoff: { type: 'exponential', delay: 1000 } });
  await queue.upsertJobScheduler('nightly', { pattern: '0 3 * * *', tz: 'Europe/Warsaw' }, { name: 'cars', data: { color: 'red' } });
  // @ts-expect-error: a misspelt option
  await queue.add('cars', { color: 'blue' }, { attemps: 3 });
  return job.waitUntilFinished(new QueueEvents('paint'), 10_000);
}

export const videos = new Bull<{ file: string }>('videos');
void videos.process(2, async (job) => job.data.file);

export const push = consumer({ secret: 'whsec_' });
push.on('orders', async (m) => {
  if (m.attempt > 3) throw new TooManyRequests(7);
  return m.json() as unknown;
});
export const plugin = penstock;

export async function publish(): Promise<string> {
  const client = new Client({ url: 'http://127.0.0.1:8080' });
  const { messageId } = await client.publish('orders', { order: 1 }, { priority: 7, delay: 1000 });
  const { jobs } = await client.claim('orders', { limit: 2 });
  for (const job of jobs) await job.ack();
  // @ts-expect-error: a misspelt option
  await client.publish('orders', 'x', { prioriti: 1 });
  return messageId;
}

export const worker = new Worker('orders', {
  charge: async (task: Task) => {
    task.signal.addEventListener('abort', () => task.signal.reason instanceof LeaseLost);
    if (task.args.length === 0) throw new Reject('no order');
    return { paid: true };
  },
}, { concurrency: 8, lease: 30_000 });
