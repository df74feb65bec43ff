// A program of a user in strict TypeScript. It is compiled, and never run.
import { Client, LeaseLost, Reject, Worker, type Task } from 'penstock';

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
