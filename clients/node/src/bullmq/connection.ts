import { Client } from '../client.js';
import { ConfigError, PenstockError } from '../errors.js';
import type { ClientOptions } from '../settings.js';
import type { Transport } from '../transport.js';

/**
 * Where the broker is: its URL, options of a client, or a client. The connection to a Redis, as
 * BullMQ takes it, is accepted and means nothing: PENSTOCK_URL says where the broker is.
 */
export type Connection = string | URL | Client | ClientOptions | { [option: string]: unknown } | undefined;

const ours = new Set([
  'url', 'producerId', 'producerToken', 'channelToken', 'consumerToken', 'token', 'adminToken', 'worker', 'lease', 'timeout',
  'tries', 'maxConnections', 'fetch', 'transport',
]);

/** The client of a connection, and whether it is this object's own to close. */
export function clientOf(connection: Connection): { client: Client; own: boolean } {
  if (connection instanceof Client) return { client: connection, own: false };
  if (isTransport(connection)) return { client: new Client({ transport: connection }), own: true };
  return { client: new Client(optionsOf(connection)), own: true };
}

function isTransport(x: unknown): x is Transport {
  return typeof x === 'object' && x !== null && typeof (x as Transport).send === 'function' && typeof (x as Transport).close === 'function';
}

function optionsOf(connection: Connection): ClientOptions {
  if (connection === undefined || connection === null) return {};
  if (typeof connection === 'string' || connection instanceof URL) {
    const url = String(connection);
    return /^https?:/.test(url) ? { url } : {};
  }
  if (typeof connection !== 'object') throw new ConfigError('connection must be the URL of the broker, or an object');
  const options: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(connection)) if (ours.has(name)) options[name] = value;
  if (typeof options['url'] === 'string' && !/^https?:/.test(options['url'])) delete options['url'];
  return options as ClientOptions;
}

/** What a queue's consumer bears and keeps, as far as the broker lets the client read it. */
interface Policy {
  retries: number;
}

const most = 1000;
const policies = new WeakMap<Client, Map<string, Promise<Policy>>>();

/**
 * Makes the queue, and lets its consumer keep results and bear so many retries. Where management is
 * closed the queue is used as it is.
 */
export async function prepare(client: Client, queue: string, retries = 0): Promise<void> {
  const known = policies.get(client) ?? new Map<string, Promise<Policy>>();
  policies.set(client, known);
  const had = known.get(queue);
  if (had && (await had).retries >= retries) return;
  const next = makeQueue(client, queue, retries);
  known.set(queue, next);
  next.catch(() => known.delete(queue));
  await next;
}

async function makeQueue(client: Client, queue: string, retries: number): Promise<Policy> {
  await client.makeQueue(queue);
  const s = client.settings;
  if (s.channelToken && s.consumerToken && !s.adminToken) return { retries: most };
  try {
    const shown = await client.manage.consumer(queue, queue);
    const policy = (shown['Policy'] ?? {}) as Record<string, string>;
    const inherited = Array.isArray(shown['Inherited']) ? (shown['Inherited'] as string[]) : [];
    const change: Record<string, string | number> = {};
    let bears = Number(policy['MaxRetries']) || 0;
    if (policy['Responses'] === 'off') Object.assign(change, { responses: 'store', responseMaxBytes: 1 << 20 });
    if (retries > bears && inherited.includes('MaxRetries')) {
      // Jobs that kill their workers end as soon as before.
      if (inherited.includes('MaxLeasesLost')) change['maxLeasesLost'] = bears || 5;
      change['maxRetries'] = bears = Math.min(most, Math.max(retries, 2 * bears));
    }
    if (Object.keys(change).length > 0) await client.manage.putConsumer(queue, queue, change);
    return { retries: Math.max(bears, retries) };
  } catch (e) {
    if (e instanceof PenstockError && (e.status === 401 || e.status === 403)) return { retries: most };
    throw e;
  }
}
