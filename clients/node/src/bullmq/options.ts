import { ConfigError } from '../errors.js';
import type { PublishOptions } from '../message.js';
import { refuseUnknown } from '../settings.js';
import { UnsupportedError } from './errors.js';

export interface BackoffOptions {
  /** `fixed`, `exponential`, or a name for the worker's settings.backoffStrategy. */
  type: string;
  /** ms. */
  delay?: number;
  /** 0 to 1: the part of the delay that is random. */
  jitter?: number;
}

export interface DeduplicationOptions {
  id: string;
  /** ms; without it, until the job has ended. */
  ttl?: number;
  /** With `replace`: the ttl begins anew with each job that replaces the delayed one. */
  extend?: boolean;
  /** The data of a job that is delayed is replaced, and its delay begins anew. */
  replace?: boolean;
}

/** Retention is the channel's, so these are accepted and mean nothing. */
export type KeepJobs = boolean | number | { age?: number; count?: number; limit?: number };

/** Options of a job, as BullMQ 6 has them. */
export interface JobsOptions {
  attempts?: number;
  backoff?: number | BackoffOptions;
  deduplication?: DeduplicationOptions;
  /** ms. */
  delay?: number;
  jobId?: string;
  keepLogs?: number;
  /** None first, then 1, 2, ... */
  priority?: number;
  removeOnComplete?: KeepJobs;
  removeOnFail?: KeepJobs;
  /** Bytes that the data may have. */
  sizeLimit?: number;
  stackTraceLimit?: number;
  timestamp?: number;
  telemetry?: unknown;
}

const known = new Set([
  'attempts', 'backoff', 'deduplication', 'delay', 'jobId', 'keepLogs', 'priority', 'removeOnComplete', 'removeOnFail', 'sizeLimit',
  'stackTraceLimit', 'timestamp', 'telemetry',
]);

const family = 'a job has no parents and children; publish the next job at the end of the first one';

/** Options of BullMQ, of today and of earlier versions, that are refused with the reason. */
const refused: Record<string, string> = {
  lifo: 'the broker hands out the oldest job of a priority first; use priority',
  parent: family,
  failParentOnFailure: family,
  continueParentOnFailure: family,
  ignoreDependencyOnFailure: family,
  removeDependencyOnFailure: family,
  children: family,
  repeat: 'use queue.upsertJobScheduler, or penstock/bull',
  debounce: 'use deduplication',
};

/** Priorities of BullMQ end here; the broker has 1024 steps. */
const maxPriority = 2_097_152;
const steps = 1023;

/** Checks the options of a job: one that is misspelt, or that cannot be, is an error that names it. */
export function checkOptions(o: JobsOptions): JobsOptions {
  for (const name of Object.keys(o)) {
    const why = Object.hasOwn(refused, name) ? refused[name] : undefined;
    const value = (o as Record<string, unknown>)[name];
    if (why && value !== undefined && value !== false) throw new UnsupportedError(`the option ${JSON.stringify(name)}`, why);
  }
  const rest = Object.fromEntries(Object.entries(o).filter(([name, v]) => !(Object.hasOwn(refused, name) && v === false)));
  refuseUnknown('a job', rest, known);
  whole('attempts', o.attempts, 1, 1000);
  whole('priority', o.priority, 0, maxPriority);
  whole('keepLogs', o.keepLogs, 0, 1_000_000);
  if (o.delay !== undefined && !(Number.isFinite(o.delay) && o.delay >= 0)) throw new ConfigError('delay must be a number of ms from 0');
  const b = o.backoff;
  if (typeof b === 'object') {
    refuseUnknown('backoff', b, new Set(['type', 'delay', 'jitter']));
    if (typeof b.type !== 'string' || !b.type) throw new ConfigError('backoff needs a type: fixed, exponential or a name of your own');
    if (b.jitter !== undefined && !(b.jitter >= 0 && b.jitter <= 1)) throw new ConfigError('jitter of backoff must be from 0 to 1');
  } else if (b !== undefined && !(Number.isFinite(b) && b >= 0)) {
    throw new ConfigError('backoff must be ms from 0, or an object');
  }
  if (o.deduplication) {
    checkDeduplication(o.deduplication);
    if (o.jobId !== undefined) throw new ConfigError('a job has either jobId or deduplication: both are its identity');
  }
  if (o.jobId !== undefined && typeof o.jobId !== 'string') throw new ConfigError('jobId must be a text');
  return rest as JobsOptions;
}

function checkDeduplication(d: DeduplicationOptions & { keepLastIfActive?: boolean }): void {
  const { keepLastIfActive, ...rest } = d;
  if (keepLastIfActive) throw new UnsupportedError('keepLastIfActive of deduplication', 'the broker keeps no job for the end of the one that runs; add it without deduplication, or with a delay and replace');
  refuseUnknown('deduplication', rest, new Set(['id', 'ttl', 'extend', 'replace']));
  if (typeof d.id !== 'string' || !d.id) throw new ConfigError('deduplication needs an id');
  if (d.ttl !== undefined && !(Number.isFinite(d.ttl) && d.ttl > 0)) throw new ConfigError('ttl of deduplication must be a number of ms above 0');
  if (!d.extend) return;
  if (d.ttl === undefined) throw new ConfigError('extend of deduplication needs a ttl: without one a job holds others off until it has ended');
  if (!d.replace) throw new UnsupportedError('extend of deduplication without replace', 'a stored message does not change, so only the time of a delayed job, which replace changes, can begin anew');
}

function whole(name: string, n: number | undefined, least: number, most: number): void {
  if (n === undefined || (Number.isInteger(n) && n >= least && n <= most)) return;
  throw new ConfigError(`${name} must be a whole number from ${least} to ${most}`);
}

/** BullMQ: none first, then 1, 2, ...; the broker: higher first. Beyond 1023 time alone decides. */
export function brokerPriority(priority: number | undefined): number {
  return Math.max(0, steps - (priority ?? 0));
}

export function bullPriority(priority: number): number {
  return steps - priority;
}

/** What the worker has to know of the options; absent where they are the defaults. */
export function metaOf(o: JobsOptions): Record<string, unknown> {
  const opts: Record<string, unknown> = {};
  if (o.attempts !== undefined && o.attempts !== 1) opts['attempts'] = o.attempts;
  if (o.backoff !== undefined) opts['backoff'] = o.backoff;
  if (o.timestamp !== undefined) opts['timestamp'] = o.timestamp;
  if (o.keepLogs !== undefined) opts['keepLogs'] = o.keepLogs;
  if (o.delay) opts['delay'] = o.delay;
  if (o.priority) opts['priority'] = o.priority;
  if (o.deduplication) opts['deduplication'] = { id: o.deduplication.id };
  return Object.keys(opts).length > 0 ? { opts } : {};
}

/** How the message of a job is published. */
export function publishing(name: string, id: string | undefined, o: JobsOptions): PublishOptions {
  return {
    priority: brokerPriority(o.priority),
    ...(id === undefined ? {} : { messageId: id }),
    ...(o.delay ? { delay: o.delay } : {}),
    // A name that no header can have stands in the payload alone.
    ...(/^[^,\x00-\x1f\x7f]+$/.test(name) && name.trim() === name && Buffer.byteLength(name) <= 128 ? { task: name } : {}),
  };
}

/** ms until the next attempt, after so many attempts that failed. */
export function backoffDelay(made: number, backoff: number | BackoffOptions | undefined): number | undefined {
  const b = typeof backoff === 'number' ? { type: 'fixed', delay: backoff } : backoff;
  if (!b) return 0;
  const delay = Math.max(0, Number(b.delay) || 0); // the payload may be of another language
  const jitter = (ms: number): number => (b.jitter ? Math.floor(ms * (1 - b.jitter) + Math.random() * ms * b.jitter) : ms);
  if (b.type === 'fixed') return jitter(delay);
  if (b.type === 'exponential') return jitter(Math.min(delay * 2 ** Math.min(made - 1, 40), 604_800_000));
  return undefined;
}
