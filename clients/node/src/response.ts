import type { Client } from './client.js';
import type { PenstockError } from './errors.js';
import type { LeasedJob, Update } from './job.js';

/** The largest JSON of a response that goes along with a report; bytes. */
const mostResponse = 64 << 10;

/** Queues whose consumer keeps no responses are not sent any for so many ms. */
const mute = 10_000;
const off = new WeakMap<Client, Map<string, number>>();

/** Notes that the consumer of a queue keeps no responses. */
export function silence(client: Client, channel: string, consumer: string): void {
  const queues = off.get(client) ?? new Map<string, number>();
  off.set(client, queues);
  queues.set(`${channel}/${consumer}`, Date.now() + mute);
}

function silent(job: LeasedJob): boolean {
  return (off.get(job.client)?.get(`${job.channel}/${job.consumer}`) ?? 0) > Date.now();
}

/**
 * What the report of a job says of its result, which is JSON: the broker stores both at once. A result that is
 * too large for a report is posted before it.
 */
export async function reply(job: LeasedJob, result: string): Promise<Pick<Update, 'Response' | 'ResponseType'>> {
  if (silent(job)) return {};
  if (Buffer.byteLength(JSON.stringify(result)) <= mostResponse) return { Response: result, ResponseType: 'application/json' };
  await respond(job, result);
  return {};
}

/** Stores the result of a job, as JSON, as the response to its message, where its consumer keeps responses. */
export async function respond(job: LeasedJob, result: string): Promise<void> {
  if (silent(job)) return;
  try {
    await job.client.respond(job.channel, job.messageId, result, { consumer: job.consumer, contentType: 'application/json' });
  } catch (e) {
    const code = (e as PenstockError).code;
    if (code === 'responses_off') silence(job.client, job.channel, job.consumer);
    else if (code !== 'response_exists' && code !== 'message_not_found') throw e;
  }
}
