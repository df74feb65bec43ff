/** The names of Bull 4, on Penstock: one class adds jobs and processes them. */
import { clientOf, type Connection } from './bullmq/connection.js';
import { Emitter } from './bullmq/emitter.js';
import { DelayedError, UnrecoverableError, UnsupportedError } from './bullmq/errors.js';
import { QueueEvents } from './bullmq/events.js';
import type { Job as Job6 } from './bullmq/job.js';
import type { BackoffOptions, KeepJobs } from './bullmq/options.js';
import { Queue as Queue6, type JobType } from './bullmq/queue.js';
import type { JobSchedulerJson, RepeatOptions } from './bullmq/scheduler.js';
import { Worker, type WorkerOptions } from './bullmq/worker.js';
import type { Client } from './client.js';
import { ConfigError, PenstockError } from './errors.js';
import { refuseUnknown } from './settings.js';

export { UnsupportedError } from './bullmq/errors.js';

export interface CronRepeatOptions {
  cron?: string;
  every?: number;
  tz?: string;
  limit?: number;
  startDate?: Date | string | number;
  endDate?: Date | string | number;
}

export interface JobOptions {
  attempts?: number;
  backoff?: number | BackoffOptions;
  delay?: number;
  jobId?: string | number;
  /** None first, then 1, 2, ... */
  priority?: number;
  removeOnComplete?: KeepJobs;
  removeOnFail?: KeepJobs;
  repeat?: CronRepeatOptions;
  stackTraceLimit?: number;
  /** ms after which the job fails. */
  timeout?: number;
}

export interface QueueOptions {
  /** Where the broker is; a Redis, as Bull takes it, means nothing here. */
  redis?: Connection;
  connection?: Connection;
  defaultJobOptions?: JobOptions;
  limiter?: { max: number; duration: number; bounceBack?: boolean };
  prefix?: string;
  createClient?: unknown;
  metrics?: unknown;
  settings?: {
    lockDuration?: number;
    maxStalledCount?: number;
    backoffStrategies?: Record<string, (attemptsMade: number, err: Error) => number>;
    lockRenewTime?: number;
    stalledInterval?: number;
    guardInterval?: number;
    retryProcessDelay?: number;
    drainDelay?: number;
    isSharedChildPool?: boolean;
  };
}

const queueOptions = new Set(['redis', 'connection', 'defaultJobOptions', 'limiter', 'prefix', 'createClient', 'metrics', 'settings']);
const jobOptions = new Set(['attempts', 'backoff', 'delay', 'jobId', 'priority', 'removeOnComplete', 'removeOnFail', 'repeat', 'stackTraceLimit', 'timeout', 'lifo', 'debounce']);
const repeatOptions = new Set(['cron', 'every', 'tz', 'limit', 'startDate', 'endDate', 'count']);

const limiterOptions = new Set(['max', 'duration', 'bounceBack']);
const settingsOptions = new Set([
  'lockDuration', 'maxStalledCount', 'backoffStrategies', 'lockRenewTime', 'stalledInterval', 'guardInterval', 'retryProcessDelay', 'drainDelay',
  'isSharedChildPool',
]);

export type DoneCallback = (error?: Error | null, value?: any) => void;
/** A function that takes `done` calls it; any other one returns the result, or a promise of it. */
export type ProcessFunction<T = any> = (job: Job<T>, done: DoneCallback) => any;

/** The task of jobs that are added without a name. */
const unnamed = '__default__';

/** Job is a job of a queue, as Bull 4 shows it. */
export class Job<T = any> {
  readonly #job: Job6;

  constructor(readonly queue: Queue<T>, job: Job6) {
    this.#job = job;
  }

  get id(): string {
    return this.#job.id;
  }
  get name(): string {
    return this.#job.name;
  }
  get data(): T {
    return this.#job.data as T;
  }
  get opts(): JobOptions {
    return this.#job.opts;
  }
  get attemptsMade(): number {
    return this.#job.attemptsMade;
  }
  get returnvalue(): any {
    return this.#job.returnvalue;
  }
  get failedReason(): string {
    return this.#job.failedReason;
  }
  get stacktrace(): string[] {
    return this.#job.stacktrace;
  }
  get timestamp(): number {
    return this.#job.timestamp;
  }
  get processedOn(): number | undefined {
    return this.#job.processedOn;
  }
  get finishedOn(): number | undefined {
    return this.#job.finishedOn;
  }

  /** Without a value: how far the job is. */
  progress(value?: any): any {
    return value === undefined ? this.#job.progress : this.#job.updateProgress(value);
  }
  log(row: string): Promise<number> {
    return this.#job.log(row);
  }
  getState(): Promise<string> {
    return this.#job.getState();
  }
  isCompleted(): Promise<boolean> {
    return this.#job.isCompleted();
  }
  isFailed(): Promise<boolean> {
    return this.#job.isFailed();
  }
  isDelayed(): Promise<boolean> {
    return this.#job.isDelayed();
  }
  isActive(): Promise<boolean> {
    return this.#job.isActive();
  }
  isWaiting(): Promise<boolean> {
    return this.#job.isWaiting();
  }
  update(data: T): Promise<void> {
    return this.#job.updateData(data);
  }
  remove(): Promise<void> {
    return this.#job.remove();
  }
  retry(): Promise<void> {
    return this.#job.retry();
  }
  promote(): Promise<void> {
    return this.#job.promote();
  }
  /** In a processor: if the job fails now, it is not tried again. */
  async discard(): Promise<void> {
    this.discarded = true;
  }
  /** @internal */
  discarded = false;

  /** Resolves with the result of the job, and rejects where it fails for good. */
  finished(): Promise<any> {
    return this.#job.waitUntilFinished();
  }
  toJSON(): Record<string, unknown> {
    return this.#job.toJSON();
  }
}

/** Queue adds and processes jobs, as Bull 4's does. */
export class Queue<T = any> extends Emitter {
  readonly name: string;
  readonly client: Client;
  readonly #own: boolean;
  readonly #opts: QueueOptions;
  readonly #queue: Queue6;
  readonly #processors = new Map<string, ProcessFunction<T>>();
  readonly #jobs = new WeakMap<Job6, Job<T>>();
  #worker: Worker | undefined;
  #events: QueueEvents | undefined;

  constructor(name: string, url?: string | QueueOptions, opts?: QueueOptions) {
    super();
    const o = { ...(typeof url === 'object' ? url : {}), ...opts };
    refuseUnknown('Queue', o, queueOptions);
    refuseUnknown('limiter', o.limiter ?? {}, limiterOptions);
    refuseUnknown('settings', o.settings ?? {}, settingsOptions);
    [this.name, this.#opts] = [name, o];
    const connection = o.connection ?? (typeof url === 'string' ? url : undefined) ?? o.redis;
    ({ client: this.client, own: this.#own } = clientOf(connection));
    this.#queue = new Queue6(name, { connection: this.client });
    this.#queue.on('waiting', (job: Job6) => this.emit('waiting', job.id));
    this.on('newListener', (event: string) => this.#listen(event));
  }

  /** A listener of all processes needs the events of the broker. */
  #listen(event: string): void {
    if (!event.startsWith('global:') || this.#events) return;
    const events = (this.#events = new QueueEvents(this.name, { connection: this.client }));
    events.on('error', (e) => this.#error(e));
    events.on('completed', (e) => this.emit('global:completed', e.jobId, JSON.stringify(e.returnvalue)));
    events.on('failed', (e) => this.emit('global:failed', e.jobId, e.failedReason));
    events.on('progress', (e) => this.emit('global:progress', e.jobId, e.data));
    for (const name of ['waiting', 'active', 'stalled', 'drained']) events.on(name, (e) => this.emit(`global:${name}`, e?.jobId));
  }

  #error(e: Error): void {
    if (this.listenerCount('error') > 0) this.emit('error', e);
    else console.error(`penstock: queue "${this.name}": ${e.message}`);
  }

  async isReady(): Promise<this> {
    await this.#queue.waitUntilReady();
    return this;
  }

  add(data: T, opts?: JobOptions): Promise<Job<T>>;
  add(name: string, data: T, opts?: JobOptions): Promise<Job<T>>;
  async add(first: unknown, second?: unknown, third?: JobOptions): Promise<Job<T>> {
    const [name, data, opts] = typeof first === 'string' ? [first, second, third] : [unnamed, first, second as JobOptions | undefined];
    const o = { ...this.#opts.defaultJobOptions, ...opts };
    refuseUnknown('a job', o, jobOptions);
    const { repeat, timeout, jobId, ...rest } = o;
    const options = { ...rest, ...(jobId === undefined ? {} : { jobId: String(jobId) }) };
    if (timeout !== undefined) throw new UnsupportedError('the option "timeout"', 'end the work yourself, such as with AbortSignal.timeout');
    if (!repeat) return this.#of(await this.#queue.add(name, data, options));
    refuseUnknown('repeat', repeat, repeatOptions);
    const { cron, ...times } = repeat;
    const { jobId: id, delay: _delay, ...template } = options;
    const rhythm = { ...times, ...(cron === undefined ? {} : { pattern: cron }) } as RepeatOptions;
    return this.#of(await this.#queue.upsertJobScheduler(keyOf(name, rhythm, id), rhythm, { name, data, opts: template }));
  }

  addBulk(jobs: { name?: string; data: T; opts?: JobOptions }[]): Promise<Job<T>[]> {
    return Promise.all(jobs.map((j) => this.add(j.name ?? unnamed, j.data, j.opts)));
  }

  #of(job: Job6): Job<T> {
    let made = this.#jobs.get(job);
    if (!made) this.#jobs.set(job, (made = new Job<T>(this, job)));
    return made;
  }

  /** Processes the jobs with a name, or all; the concurrencies of several names add up. */
  process(f: ProcessFunction<T> | string): Promise<void>;
  process(concurrency: number, f: ProcessFunction<T> | string): Promise<void>;
  process(name: string, f: ProcessFunction<T>): Promise<void>;
  process(name: string, concurrency: number, f: ProcessFunction<T>): Promise<void>;
  process(...given: (string | number | ProcessFunction<T>)[]): Promise<void> {
    const f = given.find((x): x is ProcessFunction<T> => typeof x === 'function');
    const texts = given.filter((x): x is string => typeof x === 'string');
    if (!f) throw new UnsupportedError('a processor in a file of its own', 'pass a function; leases are renewed in a thread of their own');
    const name = texts[0] ?? unnamed;
    const concurrency = given.find((x): x is number => typeof x === 'number') ?? 1;
    if (this.#processors.has(name)) throw new ConfigError(`Cannot define the same handler twice ${name}`);
    this.#processors.set(name, f);
    if (this.#worker) {
      this.#worker.concurrency += concurrency;
      return this.#worker.run();
    }
    this.#worker = this.#work(concurrency);
    return this.#worker.run();
  }

  #work(concurrency: number): Worker {
    const { limiter, settings: s } = this.#opts;
    const strategies = s?.backoffStrategies;
    const o: WorkerOptions = {
      connection: this.client, concurrency, autorun: false,
      ...(limiter ? { limiter: { max: limiter.max, duration: limiter.duration } } : {}),
      ...(s?.lockDuration === undefined ? {} : { lockDuration: s.lockDuration }),
      ...(s?.maxStalledCount === undefined ? {} : { maxStalledCount: s.maxStalledCount }),
      ...(strategies ? { settings: { backoffStrategy: (made: number, type?: string, err?: Error) => strategies[type ?? '']?.(made, err!) ?? -1 } } : {}),
    };
    const worker = new Worker(this.name, (job) => this.#process(job), o);
    worker.on('error', (e) => this.#error(e));
    worker.on('active', (job: Job6) => this.emit('active', this.#of(job), Promise.resolve()));
    worker.on('completed', (job: Job6, result) => this.emit('completed', this.#of(job), result));
    worker.on('failed', (job: Job6, e: Error) => this.emit('failed', this.#of(job), e));
    worker.on('progress', (job: Job6, progress) => this.emit('progress', this.#of(job), progress));
    worker.on('stalled', (id: string) => this.emit('stalled', { id }));
    worker.on('drained', () => this.emit('drained'));
    return worker;
  }

  async #process(job6: Job6): Promise<unknown> {
    const job = this.#of(job6);
    const f = this.#processors.get(job6.name) ?? this.#processors.get('*') ?? (this.#processors.size === 1 ? this.#processors.get(unnamed) : undefined);
    if (!f) {
      // Another version of the program may have it: the job goes back, and is no attempt.
      this.#error(new PenstockError(`Missing process handler for job type ${job6.name}; it is given back`, 'no_handler'));
      job6.asked.delay = 10_000 + Math.random() * 10_000;
      throw new DelayedError();
    }
    try {
      if (f.length < 2) return await (f as (job: Job<T>) => any)(job);
      return await new Promise((resolve, reject) => {
        const done: DoneCallback = (e, value) => (e ? reject(e) : resolve(value));
        void f(job, done);
      });
    } catch (e) {
      if (job.discarded) throw new UnrecoverableError((e as Error).message);
      throw e;
    }
  }

  /** All workers of the queue, or with `isLocal` that of this process. */
  async pause(isLocal = false, doNotWaitActive = false): Promise<void> {
    if (isLocal) await this.#worker?.pause(doNotWaitActive);
    else await this.#queue.pause();
    this.emit('paused');
  }
  async resume(isLocal = false): Promise<void> {
    if (isLocal) await this.#worker?.resume();
    else await this.#queue.resume();
    this.emit('resumed', undefined);
  }
  async isPaused(isLocal = false): Promise<boolean> {
    return isLocal ? (this.#worker?.isPaused() ?? false) : this.#queue.isPaused();
  }
  count(): Promise<number> {
    return this.#queue.count();
  }
  empty(): Promise<void> {
    return this.#queue.drain(true);
  }
  async whenCurrentJobsFinished(): Promise<void> {
    await this.#worker?.pause();
    await this.#worker?.resume();
  }
  async getJob(id: string | number): Promise<Job<T> | null> {
    const job = await this.#queue.getJob(String(id));
    return job ? this.#of(job) : null;
  }
  async getJobs(types: JobType[], start = 0, end = -1, asc = false): Promise<Job<T>[]> {
    return (await this.#queue.getJobs(types, start, end, asc)).map((j) => this.#of(j));
  }
  getWaiting(start = 0, end = -1): Promise<Job<T>[]> {
    return this.getJobs(['waiting', 'prioritized'], start, end, true);
  }
  getActive(start = 0, end = -1): Promise<Job<T>[]> {
    return this.getJobs(['active'], start, end, true);
  }
  getDelayed(start = 0, end = -1): Promise<Job<T>[]> {
    return this.getJobs(['delayed'], start, end, true);
  }
  getCompleted(start = 0, end = -1): Promise<Job<T>[]> {
    return this.getJobs(['completed'], start, end);
  }
  getFailed(start = 0, end = -1): Promise<Job<T>[]> {
    return this.getJobs(['failed'], start, end);
  }
  async getJobCounts(): Promise<{ waiting: number; active: number; completed: number; failed: number; delayed: number; paused: number }> {
    const c = await this.#queue.getJobCounts('waiting', 'prioritized', 'active', 'completed', 'failed', 'delayed', 'paused');
    const n = (name: string): number => c[name] ?? 0;
    return { waiting: n('waiting') + n('prioritized'), active: n('active'), completed: n('completed'), failed: n('failed'), delayed: n('delayed'), paused: n('paused') };
  }
  getJobLogs(id: string, start = 0, end = -1): Promise<{ logs: string[]; count: number }> {
    return this.#queue.getJobLogs(id, start, end);
  }
  async clean(grace: number, status: JobType = 'completed', limit = 0): Promise<string[]> {
    const removed = await this.#queue.clean(grace, limit, status);
    this.emit('cleaned', removed, status);
    return removed;
  }
  async getRepeatableJobs(): Promise<(JobSchedulerJson & { cron?: string })[]> {
    return (await this.#queue.getJobSchedulers()).map((s) => ({ ...s, ...(s.pattern === undefined ? {} : { cron: s.pattern }) }));
  }
  removeRepeatableByKey(key: string): Promise<boolean> {
    return this.#queue.removeJobScheduler(key);
  }
  removeRepeatable(first: string | CronRepeatOptions & { jobId?: string | number }, second?: CronRepeatOptions & { jobId?: string | number }): Promise<boolean> {
    const [name, repeat] = typeof first === 'string' ? [first, second ?? {}] : [unnamed, first];
    const { cron, jobId, ...times } = repeat;
    const rhythm = { ...times, ...(cron === undefined ? {} : { pattern: cron }) } as RepeatOptions;
    return this.#queue.removeJobScheduler(keyOf(name, rhythm, jobId === undefined ? undefined : String(jobId)));
  }
  obliterate(): Promise<void> {
    return this.#queue.obliterate();
  }

  /** Ends what runs and takes nothing more; with `doNotWaitJobs` the jobs that run are given back. */
  async close(doNotWaitJobs = false): Promise<void> {
    await this.#worker?.close(doNotWaitJobs);
    await this.#events?.close();
    await this.#queue.close();
    if (this.#own) await this.client.close();
  }
}

/** Bull's identity of a repeated job: its name, its jobId and its times. */
function keyOf(name: string, r: RepeatOptions, id = ''): string {
  const text = [name, id, r.pattern ?? r.every ?? '', r.tz ?? ''].join(':');
  return `repeat:${text.replace(/[^A-Za-z0-9._~:@-]/g, (c) => `~${c.charCodeAt(0).toString(16)}`)}`.slice(0, 240);
}

export default Queue;
