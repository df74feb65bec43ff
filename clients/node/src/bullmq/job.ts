import { sleep } from '../backoff.js';
import type { Client } from '../client.js';
import { ApiError, PenstockError } from '../errors.js';
import type { JobPayload, LeasedJob } from '../job.js';
import { respond } from '../response.js';
import { bus } from './bus.js';
import { failing } from './failing.js';
import { UnsupportedError } from './errors.js';
import { bullPriority, type JobsOptions } from './options.js';
import { find, type Standing } from './standing.js';

export type JobState = 'waiting' | 'prioritized' | 'delayed' | 'active' | 'completed' | 'failed' | 'unknown';

/** The queue of a job, as far as a job needs it. */
export interface QueueLike {
  readonly name: string;
  readonly client: Client;
}

/** A job that was there, and is not for so many ms, was removed. */
const missing = 2000;

/** What a processor has asked of its worker. */
export interface Asked {
  delay?: number;
}

/** Job is a job of a queue, as BullMQ 6 shows it. */
export class Job<Data = any, Result = any, Name extends string = string> {
  id: string;
  name: Name;
  data: Data;
  opts: JobsOptions;
  progress: any = 0;
  returnvalue: Result = undefined as Result;
  failedReason = '';
  stacktrace: string[] = [];
  /** Attempts that have failed. */
  attemptsMade = 0;
  /** Attempts that have begun, those of workers that were lost included. */
  attemptsStarted = 0;
  /** Leases that ended without a word. */
  stalledCounter = 0;
  timestamp: number;
  processedOn?: number;
  finishedOn?: number;
  delay = 0;
  priority = 0;
  repeatJobKey?: string;
  /** The arguments of a job of another language; `data` is the first one where there is one only. */
  args: unknown[];
  kwargs: Record<string, unknown>;
  readonly queueName: string;
  /** @internal */
  readonly queue: QueueLike;
  /** @internal */
  leased: LeasedJob | undefined;
  /** @internal */
  asked: Asked = {};
  token?: string;
  /** @internal */
  settings: { backoffStrategy?: (attemptsMade: number, type?: string, err?: Error, job?: Job) => number | Promise<number> } | undefined;

  constructor(queue: QueueLike, name: Name, data: Data, opts: JobsOptions = {}, id = '') {
    this.queue = queue;
    this.queueName = queue.name;
    [this.name, this.data, this.opts, this.id] = [name, data, opts, id];
    this.timestamp = opts.timestamp ?? Date.now();
    this.delay = opts.delay ?? 0;
    this.priority = opts.priority ?? 0;
    this.args = [data];
    this.kwargs = {};
  }

  static async create<D = any, R = any, N extends string = string>(queue: { add(name: N, data: D, opts?: JobsOptions): Promise<Job<D, R, N>> }, name: N, data: D, opts?: JobsOptions): Promise<Job<D, R, N>> {
    return queue.add(name, data, opts);
  }

  static async fromId<D = any, R = any, N extends string = string>(queue: QueueLike, id: string): Promise<Job<D, R, N> | undefined> {
    const standing = await find(queue, id);
    return standing && (await jobOf<D, R, N>(queue, standing));
  }

  get attempts(): number {
    return this.opts.attempts ?? 1;
  }

  /** Tells listeners of this process how far the job is; the broker keeps no progress. */
  async updateProgress(progress: any): Promise<void> {
    this.progress = progress;
    bus.tell(this.queueName, this.id).progress = progress;
    bus.emit('progress', { queue: this.queueName, jobId: this.id, data: progress, job: this });
  }

  /** Adds a line to the log of the job. The broker keeps the last lines of an attempt that fails. */
  async log(row: string): Promise<number> {
    return bus.log(this.queueName, this.id, String(row), this.opts.keepLogs ?? 1000);
  }

  async clearLogs(): Promise<void> {
    bus.clear(this.queueName, this.id);
  }

  async getState(): Promise<JobState> {
    return (await find(this.queue, this.id))?.state ?? 'unknown';
  }

  async isCompleted(): Promise<boolean> {
    return (await this.getState()) === 'completed';
  }

  async isFailed(): Promise<boolean> {
    return (await this.getState()) === 'failed';
  }

  async isDelayed(): Promise<boolean> {
    return (await this.getState()) === 'delayed';
  }

  async isActive(): Promise<boolean> {
    return (await this.getState()) === 'active';
  }

  async isWaiting(): Promise<boolean> {
    const state = await this.getState();
    return state === 'waiting' || state === 'prioritized';
  }

  /** In a processor: the job is due at that time. The processor then throws DelayedError. */
  async moveToDelayed(timestamp: number, _token?: string): Promise<void> {
    if (this.leased) this.asked.delay = Math.max(0, timestamp - Date.now());
    else await this.#wait(timestamp - Date.now());
  }

  /** Ends a job that getNextJob took. */
  async moveToCompleted(value: Result, _token?: string, _fetchNext = true): Promise<undefined> {
    if (!this.leased) throw new PenstockError(`Missing lock for job ${this.id}. moveToFinished`, 'no_lock');
    this.returnvalue = value;
    if (value !== undefined) await respond(this.leased, JSON.stringify(value));
    await this.leased.ack();
    return undefined;
  }

  /** Ends an attempt of a job that getNextJob took. */
  async moveToFailed(error: Error, _token?: string, _fetchNext = true): Promise<undefined> {
    if (!this.leased) throw new PenstockError(`Missing lock for job ${this.id}. moveToFinished`, 'no_lock');
    this.failedReason = error.message;
    this.attemptsMade++;
    const ending = await failing(this, error);
    const said = { reason: ending.Reason ?? '', detail: ending.Detail ?? '' };
    if (ending.NextState === 'DEAD') await this.leased.reject(said);
    else await this.leased.nack({ ...said, failed: true, delay: (ending.Delay ?? 0) * 1000 });
    return undefined;
  }

  /** In a processor: the job goes back. The processor then throws WaitingError. */
  async moveToWait(_token?: string): Promise<void> {
    this.asked.delay = 0;
  }

  /** Of a delayed job: it is due so many ms from now. */
  async changeDelay(delay: number): Promise<void> {
    await this.#wait(delay);
    this.delay = delay;
  }

  /** Of a delayed job: it is due now. */
  async promote(): Promise<void> {
    const s = await find(this.queue, this.id);
    if (s?.schedule) await this.queue.client.reschedule(this.queueName, this.id, { delay: 0 });
    else if (s?.state !== 'delayed') throw new PenstockError(`Job ${this.id} is not in the delayed state. promote`, 'not_delayed');
    else await this.#retrigger(s);
    this.delay = 0;
  }

  async #wait(ms: number): Promise<void> {
    const s = await find(this.queue, this.id);
    if (!s?.schedule) throw new PenstockError(`Job ${this.id} is not in the delayed state. changeDelay`, 'not_delayed');
    await this.queue.client.reschedule(this.queueName, this.id, { delay: Math.max(0, ms) });
  }

  /** A job that waits for its next attempt goes back without a delay. */
  async #retrigger(s: Standing): Promise<void> {
    const lease = await take(this.queue, s);
    if (lease) await move(this.queue, { ID: s.jobId, Lease: lease, NextState: 'QUEUED' });
  }

  /** Of a failed job: it is tried again, and its attempts begin anew. */
  async retry(state: 'failed' | 'completed' = 'failed'): Promise<void> {
    if (state !== 'failed') throw new UnsupportedError('retry of a completed job', 'add it again, or replay it (docs/messages.md)');
    const s = await find(this.queue, this.id);
    if (s?.state !== 'failed') throw new PenstockError(`Job ${this.id} is not in the failed state. reprocessJob`, 'not_failed');
    const q = this.queueName;
    await this.queue.client.asConsumer(q, q, { method: 'POST', path: `/channel/${q}/consumer/${q}/job/${s.jobId}/requeue-dead-job` }, [202]);
    this.failedReason = '';
  }

  /** Ends a job that waits; a failed one leaves the dead letters (BROKER_ALLOW_DELETE). */
  async remove(): Promise<void> {
    const s = await find(this.queue, this.id);
    if (!s) return;
    if (s.state === 'active') throw new PenstockError(`Job ${this.id} could not be removed because it is locked by another worker`, 'locked');
    await remove(this.queue, s);
  }

  /** Keeps the job for so many ms. Leases are renewed without it. */
  async extendLock(_token: string, duration: number): Promise<number> {
    await this.leased?.extend(duration);
    return 1;
  }

  async updateData(data: Data): Promise<void> {
    const s = await find(this.queue, this.id);
    if (!s?.schedule) throw new UnsupportedError('updateData of a job that is not delayed', 'a stored message does not change');
    await this.queue.client.reschedule(this.queueName, this.id, { payload: { ...s.call, args: [data] } });
    this.data = data;
  }

  /**
   * Resolves with what the processor returned, and rejects where the job fails for good. The result is
   * stored, so it does not matter whether the job has ended before.
   */
  async waitUntilFinished(_queueEvents?: unknown, ttl?: number): Promise<Result> {
    const end = ttl === undefined ? Infinity : performance.now() + ttl;
    let seen = false;
    let gone = Infinity;
    for (let step = 250; ; step = Math.min(step * 2, 2000)) {
      const s = await find(this.queue, this.id);
      // Between schedule and message, and while a broker has a job in its journal, there is none for a while.
      gone = s || !seen ? Infinity : Math.min(gone, performance.now());
      seen ||= s !== undefined;
      if (performance.now() - gone > missing) throw new Error(`Missing key for job ${this.id}: it was removed`);
      if (s?.state === 'failed') throw new Error(s.failedReason);
      if (s?.state === 'unknown' && s.jobId) throw new Error(`Missing key for job ${this.id}: it was drained`);
      if (s?.state === 'completed') return (await result(this.queue, this.id)) as Result;
      const left = end - performance.now();
      if (left <= 0) {
        throw new Error(`Job wait ${this.name} timed out before finishing, no finish notification arrived after ${ttl}ms (id=${this.id})`);
      }
      const began = performance.now();
      const wait = Math.min(step, Math.max(50, left));
      if (s && !s.schedule) {
        const found = await response(this.queue, this.id, wait);
        if (found) return found.value as Result;
      }
      const rest = Math.min(wait, left) - (performance.now() - began);
      if (rest > 0) await sleep(rest);
    }
  }

  toJSON(): Record<string, unknown> {
    const { id, name, data, opts, progress, returnvalue, failedReason, attemptsMade, attemptsStarted, timestamp, processedOn, finishedOn, delay, priority } = this;
    return { id, name, data, opts, progress, returnvalue, failedReason, attemptsMade, attemptsStarted, timestamp, processedOn, finishedOn, delay, priority, queueName: this.queueName };
  }

  asJSON(): Record<string, unknown> {
    return this.toJSON();
  }
}

/** The data of a job: its one argument, as BullMQ's clients have, or all that another language sent. */
export function dataOf(call: JobPayload): unknown {
  const named = Object.keys(call.kwargs).length > 0;
  if (call.args.length === 1 && !named) return call.args[0];
  if (call.args.length === 0) return call.kwargs;
  return { args: call.args, kwargs: call.kwargs };
}

/** The job that a message is. */
export async function jobOf<D = any, R = any, N extends string = string>(queue: QueueLike, s: Standing): Promise<Job<D, R, N>> {
  const job = fromCall<D, R, N>(queue, s.id, s.call, s.priority);
  job.timestamp = s.call.meta['opts'] && typeof (s.call.meta['opts'] as JobsOptions).timestamp === 'number' ? job.timestamp : s.timestamp;
  job.stalledCounter = s.leasesLost;
  job.attemptsStarted = s.attempts;
  job.attemptsMade = Math.max(0, s.attempts - s.leasesLost - (s.state === 'active' ? 1 : 0));
  job.progress = bus.of(queue.name, s.id)?.progress ?? 0;
  if (s.delay !== undefined) job.delay = s.delay;
  if (s.state === 'completed' || s.state === 'failed') job.finishedOn = s.changedAt;
  if (s.state === 'active') job.processedOn = s.changedAt;
  if (s.state === 'failed') [job.failedReason, job.stacktrace] = [s.failedReason, s.detail ? [s.detail] : []];
  if (s.state === 'completed') job.returnvalue = (await result(queue, s.id)) as R;
  return job;
}

/** @internal */
export function fromCall<D, R, N extends string>(queue: QueueLike, id: string, call: JobPayload, priority: number): Job<D, R, N> {
  const opts = { ...((call.meta['opts'] ?? {}) as JobsOptions) };
  if (priority < 1023 && opts.priority === undefined && priority > 0) opts.priority = bullPriority(priority);
  const job = new Job<D, R, N>(queue, call.task as N, dataOf(call) as D, opts, id);
  job.args = call.args;
  job.kwargs = call.kwargs;
  const scheduler = call.meta['scheduler'];
  if (typeof scheduler === 'string') job.repeatJobKey = scheduler;
  return job;
}

/** The response of the queue's consumer to a message, if there is one within the wait. */
export async function response(queue: QueueLike, id: string, wait = 0): Promise<{ value: unknown } | undefined> {
  let entries;
  try {
    entries = await queue.client.responses(queue.name, id, { wait, until: 'first' });
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) return undefined;
    throw e;
  }
  const e = entries.find((one) => one.ConsumerID === queue.name && one.State.startsWith('RESPONSE_'));
  if (!e) return undefined;
  const text = e.BodyEncoding === 'base64' ? Buffer.from(e.Body, 'base64').toString('utf8') : e.Body;
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { value: text };
  }
}

export async function result(queue: QueueLike, id: string): Promise<unknown> {
  const found = await response(queue, id);
  return found ? found.value : null;
}

/** Leases a job that waits, by its ID; undefined: another worker has it. */
export async function take(queue: QueueLike, s: Standing): Promise<string | undefined> {
  const q = queue.name;
  const path = `/channel/${q}/consumer/${q}/job/${s.jobId}`;
  const headers = { 'Content-Type': 'application/json', 'X-Broker-Worker': queue.client.settings.worker };
  try {
    const r = await queue.client.asConsumer(q, q, { method: 'POST', path, headers, body: '{"NextState":"INFLIGHT"}' }, [202]);
    return r.headers['x-broker-claimed'] === 'true' ? r.headers['x-broker-lease'] : undefined;
  } catch (e) {
    if (e instanceof ApiError && (e.status === 400 || e.status === 409)) return undefined;
    throw e;
  }
}

export async function move(queue: QueueLike, update: Parameters<Client['update']>[2][number]): Promise<boolean> {
  const [r] = await queue.client.update(queue.name, queue.name, [update]);
  return r !== undefined && r.Status < 300;
}

/** Ends a job that does not run. Reports whether it did. */
export async function remove(queue: QueueLike, s: Standing): Promise<boolean> {
  if (s.schedule) return queue.client.unschedule(queue.name, s.id);
  if (s.state === 'completed') return true;
  if (s.state === 'active') return false;
  if (s.state === 'failed') return queue.client.manage.delete(`/channel/${queue.name}/consumer/${queue.name}/job/${s.jobId}`);
  const lease = await take(queue, s);
  return lease !== undefined && (await move(queue, { ID: s.jobId, Lease: lease, NextState: 'DELIVERED' }));
}
