import { createHash } from 'node:crypto';
import { PenstockError } from '../errors.js';
import type { DeduplicationOptions } from './options.js';
import type { QueueLike } from './job.js';
import { find, type Standing } from './standing.js';

/**
 * Deduplication is an ID of the message, which the broker stores once: the hash of the deduplication
 * ID, the period, and the number of the job in it. Periods are the ttl, and at least three days without
 * one or where it is extended; a job of the period before holds others off as well. So a job that is
 * open, or extended, for longer than a period does not hold others off any more.
 */
const period = 3 * 24 * 3600 * 1000;

/** The last number that was used, by its ID; so the search begins near the end. */
const last = new WeakMap<object, Map<string, number>>();

export interface Deduplicated {
  /** The job that holds the new one off. */
  standing: Standing | undefined;
  /** ID for the new job, if nothing holds it off. */
  id: string;
}

export async function deduplicate(queue: QueueLike, o: DeduplicationOptions, now: number): Promise<Deduplicated> {
  const length = o.extend ? Math.max(o.ttl!, period) : (o.ttl ?? period);
  const bucket = Math.floor(now / length);
  const hash = createHash('sha256').update(`${queue.name}\n${o.id}`).digest('hex').slice(0, 24);
  const base = (n: number): string => `once~${hash}~${n.toString(36)}`;
  const { newest, next } = await newestOf(queue, base(bucket));
  if (newest && holds(newest, o, now)) return { standing: newest, id: '' };
  const before = (await newestOf(queue, base(bucket - 1))).newest;
  if (before && holds(before, o, now)) return { standing: before, id: '' };
  // Of those that have found the same end, one gets this ID, and the others look again.
  return { standing: undefined, id: `${base(bucket)}.${next}` };
}

/** With a ttl the time since the job was added, or extended, counts; without one whether it has ended. */
function holds(s: Standing, o: DeduplicationOptions, now: number): boolean {
  if (o.ttl === undefined) return s.state !== 'completed' && s.state !== 'failed';
  return now - sinceOf(s) < o.ttl;
}

/** When the ttl of a job began: a delayed one is stored as a message later than it was added. */
export function sinceOf(s: Standing): number {
  const since = s.call.meta['since'];
  return typeof since === 'number' ? since : s.timestamp;
}

/** The newest job of a period: numbers are used without gaps, so steps that double find the end. */
async function newestOf(queue: QueueLike, base: string): Promise<{ newest: Standing | undefined; next: number }> {
  const known = last.get(queue.client) ?? new Map<string, number>();
  last.set(queue.client, known);
  let low = known.get(base) ?? 0;
  let newest = await find(queue, `${base}.${low}`);
  if (!newest && low === 0) return { newest: undefined, next: 0 };
  let step = 1;
  let high: number | undefined;
  for (let n = 0; n < 100; n++) {
    const probe: number = high === undefined ? low + step : Math.floor((low + high) / 2);
    if (high !== undefined && probe === low) {
      known.set(base, low);
      if (known.size > 10_000) known.delete(known.keys().next().value as string);
      return { newest, next: low + 1 };
    }
    const found = await find(queue, `${base}.${probe}`);
    if (found) [low, newest] = [probe, found];
    else high = probe;
    if (high === undefined) step *= 2;
  }
  throw new PenstockError('the last job of a deduplication ID cannot be found', 'deduplication');
}
