import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { ConfigError } from './errors.js';
import type { Transport } from './transport.js';

/** Options of a client. Each wins over its variable of the environment; times are milliseconds. */
export interface ClientOptions {
  /** Base address of the broker, `PENSTOCK_URL`; default `http://127.0.0.1:8080`. */
  url?: string;
  /** ID of the producer, `PENSTOCK_PRODUCER_ID`; default `penstock`. */
  producerId?: string;
  producerToken?: string;
  channelToken?: string;
  consumerToken?: string;
  /** One token for each of the three that is not given, `PENSTOCK_TOKEN`. */
  token?: string;
  /** Sent on management requests only, `PENSTOCK_ADMIN_TOKEN`. */
  adminToken?: string;
  /** Name in `X-Broker-Worker`, `PENSTOCK_WORKER`; default host-pid-xxxx. */
  worker?: string;
  /** Length of a lease, `PENSTOCK_LEASE` (seconds); default 30 000. */
  lease?: number;
  /** Time of one request; default 10 000. A request that waits has this time on top. */
  timeout?: number;
  /** How often a publish is tried, with one message ID; default 5, within 30 s. */
  tries?: number;
  /** Connections for requests that do not wait; default 64. */
  maxConnections?: number;
  /** `fetch`, or a function like it, for requests instead of node:http. */
  fetch?: typeof fetch;
  /** What carries the requests instead of HTTP: the broker of `penstock/testing`. */
  transport?: Transport;
}

/** Settings are the options with what the environment and the defaults add. */
export interface Settings {
  url: URL;
  producerId: string;
  producerToken: string;
  channelToken: string;
  consumerToken: string;
  adminToken: string;
  worker: string;
  lease: number;
  timeout: number;
  tries: number;
  maxConnections: number;
}

const names = new Set<string>([
  'url', 'producerId', 'producerToken', 'channelToken', 'consumerToken', 'token', 'adminToken', 'worker', 'lease',
  'timeout', 'tries', 'maxConnections', 'fetch', 'transport',
]);

/** The longest lease that the broker gives, ms. */
const maxLease = 604_800_000;

export function settings(o: ClientOptions = {}): Settings {
  refuseUnknown('the client', o, names);
  const token = o.token ?? env('PENSTOCK_TOKEN');
  const lease = o.lease ?? seconds('PENSTOCK_LEASE', 30);
  if (!(lease >= 1 && lease <= maxLease)) throw new ConfigError(`lease must be 1 to ${maxLease} ms`);
  return {
    url: address(o.url ?? (env('PENSTOCK_URL') || 'http://127.0.0.1:8080')),
    producerId: o.producerId ?? (env('PENSTOCK_PRODUCER_ID') || 'penstock'),
    producerToken: o.producerToken ?? (env('PENSTOCK_PRODUCER_TOKEN') || token),
    channelToken: o.channelToken ?? (env('PENSTOCK_CHANNEL_TOKEN') || token),
    consumerToken: o.consumerToken ?? (env('PENSTOCK_CONSUMER_TOKEN') || token),
    adminToken: o.adminToken ?? env('PENSTOCK_ADMIN_TOKEN'),
    worker: workerName(o.worker ?? env('PENSTOCK_WORKER')),
    lease: Math.ceil(lease / 1000) * 1000,
    timeout: positive('timeout', o.timeout ?? 10_000),
    tries: positive('tries', o.tries ?? 5),
    maxConnections: positive('maxConnections', o.maxConnections ?? 64),
  };
}

/** The nearest known name to an unknown one is told: a misspelt option never goes unnoticed. */
export function refuseUnknown(what: string, given: object, known: ReadonlySet<string>): void {
  for (const name of Object.keys(given)) {
    if (known.has(name) || (given as Record<string, unknown>)[name] === undefined) continue;
    const near = nearest(name, known);
    throw new ConfigError(`${what} has no option ${JSON.stringify(name)}${near ? `: did you mean ${JSON.stringify(near)}?` : ''}`);
  }
}

/** The known name with the fewest edits, if they are few. */
export function nearest(name: string, known: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const d = edits(name.toLowerCase(), candidate.toLowerCase());
    if (d < least) [best, least] = [candidate, d];
  }
  return best;
}

function edits(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 8 || a.length > 64) return 99;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}

function positive(name: string, n: number): number {
  if (!(Number.isFinite(n) && n > 0)) throw new ConfigError(`${name} must be a number above 0`);
  return n;
}

/** The variable, or what is in the file that NAME_FILE names. */
function env(name: string): string {
  const file = process.env[`${name}_FILE`];
  if (file) {
    try {
      return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
    } catch {
      throw new ConfigError(`the file of ${name}_FILE cannot be read`);
    }
  }
  return process.env[name] ?? '';
}

function seconds(name: string, otherwise: number): number {
  const text = env(name);
  if (!text) return otherwise * 1000;
  if (!/^\d{1,6}$/.test(text) || Number(text) < 1) throw new ConfigError(`${name} must be whole seconds from 1 to 604800`);
  return Number(text) * 1000;
}

function address(text: string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new ConfigError('the URL of the broker must be like http://127.0.0.1:8080');
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new ConfigError(`the URL of the broker must begin with http:// or https://, not ${url.protocol}//`);
  }
  if (url.username || url.password) throw new ConfigError('the URL of the broker must have no user name and password');
  if (url.search || url.hash) throw new ConfigError('the URL of the broker must have no query and fragment');
  return url;
}

function workerName(given: string): string {
  const name = given || `${hostname()}-${process.pid}-${randomBytes(2).toString('hex')}`;
  // eslint-disable-next-line no-control-regex
  return name.replace(/[;|\x00-\x1f\x7f]|[^\x20-\x7e]/g, '-').slice(0, 128);
}
