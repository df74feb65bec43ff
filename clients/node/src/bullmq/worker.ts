import { randomUUID } from 'node:crypto';
import { pause as pauseOf, sleep, transient } from '../backoff.js';
import type { Client } from '../client.js';
import { ConfigError, isA, PenstockError } from '../errors.js';
import type { LeasedJob } from '../job.js';
import { Loop, type Ending } from '../loop.js';
import type { Outcome } from '../reporter.js';
import { refuseUnknown } from '../settings.js';
import { segment } from '../wire.js';
import { reply } from '../response.js';
import { bus } from './bus.js';
import { clientOf, prepare, type Connection } from './connection.js';
import { Emitter } from './emitter.js';
import { RateLimitError, UnrecoverableError, UnsupportedError } from './errors.js';
import { fromCall, type Job } from './job.js';
import { failing } from './failing.js';
import type { KeepJobs } from './options.js';

/** Does a job; `signal` aborts when the lease is lost or the worker gives the job back. */
export type Processor<Data = any, Result = any, Name extends string = string> = (job: Job<Data, Result, Name>, token?: string, signal?: AbortSignal) => Promise<Result> | Result;

export interface WorkerOptions {
  connection?: Connection;
  autorun?: boolean;
  concurrency?: number;
  /** At most `max` jobs begin in any `duration` ms, of all workers of the queue together. */
  limiter?: { max: number; duration: number };
  /** Length of a lease, ms; default 30 000. Leases are renewed while the worker lives. */
  lockDuration?: number;
  /** How many leases of a job may end without a word. */
  maxStalledCount?: number;
  /** How often a job may begin, lost leases included; one that begins once more fails for good. */
  maxStartedAttempts?: number;
  name?: string;
  settings?: { backoffStrategy?: (attemptsMade: number, type?: string, err?: Error, job?: Job) => number | Promise<number> };
  /** Accepted; a claim waits at the broker for 20 s. */
  drainDelay?: number;
  lockRenewTime?: number;
  stalledInterval?: number;
  skipStalledCheck?: boolean;
  skipLockRenewal?: boolean;
  removeOnComplete?: KeepJobs;
  removeOnFail?: KeepJobs;
  runRetryDelay?: number;
  maximumRateLimitDelay?: number;
  metrics?: unknown;
  telemetry?: unknown;
  prefix?: string;
  blockingConnection?: boolean;
  skipVersionCheck?: boolean;
  useWorkerThreads?: boolean;
}

const options = new Set([
  'connection', 'autorun', 'concurrency', 'limiter', 'lockDuration', 'maxStalledCount', 'name', 'settings', 'drainDelay', 'lockRenewTime',
  'stalledInterval', 'skipStalledCheck', 'skipLockRenewal', 'removeOnComplete', 'removeOnFail', 'runRetryDelay', 'maximumRateLimitDelay',
  'maxStartedAttempts', 'metrics', 'telemetry', 'prefix', 'blockingConnection', 'skipVersionCheck', 'useWorkerThreads',
]);

/** Worker processes the jobs of a queue, as BullMQ 6's does. */
export class Worker<Data = any, Result = any, Name extends string = string> extends Emitter {
  readonly name: string;
  readonly opts: WorkerOptions;
  readonly id = randomUUID();
  readonly client: Client;
  readonly #own: boolean;
  readonly #processor: Processor<Data, Result, Name> | undefined;
  readonly #loop: Loop;
  readonly #jobs = new Map<string, { job: Job<Data, Result, Name>; error?: Error }>();
  readonly #end = new AbortController();
  #left: number | undefined;
  #limited = 0;
  #run: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  readonly #heard = (e: { queue: string; job: unknown; data: unknown }): void => {
    if ([...this.#jobs.values()].some((held) => held.job === e.job)) this.emit('progress', e.job, e.data);
  };

  static RateLimitError(): Error {
    return new RateLimitError();
  }

  constructor(name: string, processor?: Processor<Data, Result, Name> | string | URL | null, opts: WorkerOptions = {}) {
    super();
    refuseUnknown('Worker', opts, options);
    if (typeof processor === 'string' || processor instanceof URL) {
      throw new UnsupportedError('a processor in a file of its own', 'pass a function; leases are renewed in a thread of their own');
    }
    segment('queue', name);
    const lock = opts.lockDuration;
    if (lock !== undefined && !(Number.isFinite(lock) && lock >= 1)) throw new ConfigError('lockDuration must be a number of ms from 1');
    const concurrency = opts.concurrency ?? 1;
    if (!(Number.isFinite(concurrency) && concurrency >= 1)) throw new ConfigError('concurrency must be a finite number greater than 0');
    const most = opts.maxStartedAttempts;
    if (most !== undefined && !(Number.isInteger(most) && most >= 1)) throw new ConfigError('maxStartedAttempts must be a whole number from 1');
    if (opts.limiter) {
      refuseUnknown('limiter', opts.limiter, new Set(['max', 'duration']));
      if (!(opts.limiter.max >= 1 && opts.limiter.duration >= 1)) throw new ConfigError('limiter needs max from 1 and duration in ms');
    }
    [this.name, this.opts, this.#processor] = [name, opts, processor ?? undefined];
    ({ client: this.client, own: this.#own } = clientOf(opts.connection));
    this.#loop = new Loop(this.client, {
      channel: name, consumer: name, concurrency: Math.floor(concurrency), wait: 20_000, worker: opts.name ?? this.client.settings.worker,
      lease: lock === undefined ? this.client.settings.lease : Math.ceil(lock / 1000) * 1000,
      run: (leased, signal) => this.#process(leased, signal),
      reported: (leased, ending, outcome) => this.#reported(leased, ending, outcome),
      over: (leased) => this.#jobs.delete(leased.lease),
      error: (e) => this.#error(e),
      claimed: (jobs, backlog) => this.#claimed(jobs, backlog),
    });
    bus.on('progress', this.#heard);
    if (this.#processor && opts.autorun !== false) queueMicrotask(() => void this.run().catch(() => undefined));
  }

  get concurrency(): number {
    return this.#loop.concurrency;
  }

  set concurrency(n: number) {
    if (!(Number.isFinite(n) && n >= 1)) throw new ConfigError('concurrency must be a finite number greater than 0');
    this.#loop.concurrency = Math.floor(n);
  }

  /** Works until close. An error that no repetition helps against ends it, and is emitted. */
  run(): Promise<void> {
    if (!this.#processor) return Promise.reject(new ConfigError('No process function is defined.'));
    this.#run ??= this.#work();
    return this.#run;
  }

  async #work(): Promise<void> {
    try {
      await this.waitUntilReady();
      if (this.#closing) return;
      this.emit('ready');
      await this.#loop.run();
    } catch (e) {
      this.#error(e as Error);
      throw e;
    }
  }

  /** Resolves when the queue is made and as the options say. */
  async waitUntilReady(): Promise<Client> {
    for (let n = 0; ; n++) {
      try {
        await this.#prepare();
        return this.client;
      } catch (e) {
        if (this.#end.signal.aborted || !transient(e)) throw e;
        this.#error(e as Error);
        await sleep(pauseOf(e, n), this.#end.signal);
      }
    }
  }

  async #prepare(): Promise<void> {
    const { limiter, maxStalledCount } = this.opts;
    await prepare(this.client, this.name);
    const fields: Record<string, string | number> = {};
    if (limiter) fields['rateLimit'] = `${limiter.max}/${limiter.duration}ms`;
    if (maxStalledCount !== undefined) fields['maxLeasesLost'] = maxStalledCount;
    if (Object.keys(fields).length === 0) return;
    try {
      await this.client.manage.putConsumer(this.name, this.name, fields);
    } catch (e) {
      if (!(e instanceof PenstockError) || (e.status !== 401 && e.status !== 403)) throw e;
      const what = Object.keys(fields).join(' and ');
      throw new ConfigError(`limiter and maxStalledCount are settings of the consumer, which this worker may not change: set its ${what}, or PENSTOCK_ADMIN_TOKEN`);
    }
  }

  isRunning(): boolean {
    return this.#run !== undefined && !this.#closing;
  }

  isPaused(): boolean {
    return this.#loop.paused;
  }

  /** Claims nothing until resume, and waits for the jobs that run. */
  async pause(doNotWaitActive = false): Promise<void> {
    this.#loop.pause();
    if (!doNotWaitActive) await this.#loop.idle();
    this.emit('paused');
  }

  resume(): Promise<void> {
    this.#loop.resume();
    this.emit('resumed');
    return Promise.resolve();
  }

  /** Begins no job for so many ms; the job that throws RateLimitError goes back for that time. */
  async rateLimit(ms: number): Promise<void> {
    this.#limited = Math.max(this.#limited, Date.now() + ms);
    this.#loop.hold(ms);
  }

  /** Stops in order; called again, or with `force`, the jobs that run are given back. */
  async close(force = false): Promise<void> {
    if (force || this.#closing) this.#loop.kill();
    if (!this.#closing) {
      this.emit('closing', 'closing queue');
      this.#closing = this.#stop();
    }
    await this.#closing;
  }

  async #stop(): Promise<void> {
    this.#end.abort();
    await this.#loop.stop();
    await this.#run?.catch(() => undefined);
    bus.off('progress', this.#heard);
    if (this.#own) await this.client.close();
    this.emit('closed');
  }

  disconnect(): Promise<void> {
    return this.close(true);
  }

  /** Takes one job, for programs without a processor: then moveToCompleted or moveToFailed ends it. */
  async getNextJob(token: string, o: { block?: boolean } = {}): Promise<Job<Data, Result, Name> | undefined> {
    await prepare(this.client, this.name);
    const lease = this.opts.lockDuration ?? this.client.settings.lease;
    const wait = o.block === false ? 0 : Math.min(20_000, (this.opts.drainDelay ?? 5) * 1000);
    for (;;) {
      const { jobs: [leased] } = await this.client.claim(this.name, { wait, lease, worker: this.opts.name ?? this.client.settings.worker });
      if (!leased) return undefined;
      const call = leased.call();
      if (!call) {
        await leased.reject({ reason: 'the payload is no job' });
        continue;
      }
      return this.#jobOf(leased, token);
    }
  }

  #jobOf(leased: LeasedJob, token: string): Job<Data, Result, Name> {
    const job = fromCall<Data, Result, Name>({ name: this.name, client: this.client }, leased.messageId, leased.call()!, leased.priority);
    job.leased = leased;
    job.token = token;
    job.stalledCounter = leased.leasesLost;
    job.attemptsStarted = leased.attempt;
    job.attemptsMade = Math.max(0, leased.attempt - leased.leasesLost - 1);
    job.processedOn = Date.now();
    job.settings = this.opts.settings;
    return job;
  }

  async #process(leased: LeasedJob, signal: AbortSignal): Promise<Ending> {
    const call = leased.call();
    if (!call) return { NextState: 'DEAD', Reason: 'the payload is no job' };
    if (Array.isArray(call.meta['chain']) && call.meta['chain'].length > 0) {
      this.#error(new UnsupportedError(`job ${leased.messageId}`, 'it is one of a chain, which a worker of Python continues; it is given back'));
      return { NextState: 'QUEUED', Delay: 10 + Math.floor(Math.random() * 11) };
    }
    const job = this.#jobOf(leased, leased.lease);
    const held: { job: Job<Data, Result, Name>; error?: Error } = { job };
    this.#jobs.set(leased.lease, held);
    if (job.stalledCounter > 0) this.emit('stalled', job.id, 'active');
    this.emit('active', job, 'waiting');
    bus.emit('active', { queue: this.name, jobId: job.id });
    try {
      if (leased.attempt > (this.opts.maxStartedAttempts ?? Infinity)) throw new UnrecoverableError('job started more than allowable limit');
      const value = await this.#processor!(job, leased.lease, signal);
      if (job.asked.delay !== undefined) return back(job.asked.delay);
      job.returnvalue = value;
      // The exchange of a job whose result is ignored ends, too: nothing waits for it at the broker.
      return { NextState: 'DELIVERED', ...(await this.#kept(leased, call.meta['ignore_result'] === true ? null : value, signal)) };
    } catch (e) {
      return this.#failed(job, held, e);
    }
  }

  /** The result is stored with the end of the job. One that cannot be stored is told, and does not repeat the job. */
  async #kept(leased: LeasedJob, value: unknown, signal: AbortSignal): ReturnType<typeof reply> {
    let json: string | undefined;
    try {
      json = JSON.stringify(value);
    } catch (e) {
      throw new PenstockError(`the result is no JSON: ${(e as Error).message}`, 'result');
    }
    if (json === undefined || signal.aborted) return {};
    try {
      return await reply(leased, json);
    } catch (e) {
      this.#error(new PenstockError(`the result of job ${leased.messageId} is not stored: ${(e as Error).message}`, 'result', 0, { cause: e }));
      return {};
    }
  }

  async #failed(job: Job<Data, Result, Name>, held: { error?: Error }, e: unknown): Promise<Ending> {
    if (isA(e, 'DelayedError') || isA(e, 'WaitingError')) return back(job.asked.delay ?? 0);
    if (isA(e, 'RateLimitError')) return back(this.#limited - Date.now());
    if (isA(e, 'GiveBack')) return back(Number((e as { delay?: unknown }).delay) || 0);
    const error = e instanceof Error ? e : new Error(String(e));
    held.error = error;
    job.failedReason = error.message;
    job.attemptsMade++;
    return failing(job, error);
  }

  #reported(leased: LeasedJob, ending: Ending, outcome: Outcome): void {
    const held = this.#jobs.get(leased.lease);
    if (held && outcome.ok) {
      const { job, error } = held;
      job.finishedOn = Date.now();
      bus.emit('ended', { queue: this.name, jobId: job.id });
      if (ending.NextState === 'DELIVERED') this.emit('completed', job, job.returnvalue, 'active');
      else if (error) this.emit('failed', job, error, 'active');
    }
    this.#drained();
  }

  #claimed(jobs: number, backlog: number | undefined): void {
    if (jobs > 0) this.#left = backlog ?? -1;
    else if (this.#left !== undefined) {
      this.#left = 0;
      this.#drained();
    }
  }

  /** The queue is drained when the last claim left nothing, and what it brought is done. */
  #drained(): void {
    if (this.#left !== 0 || this.#loop.running > 0) return;
    this.#left = undefined;
    this.emit('drained');
  }

  /** An error without a listener is written, and does not end the program. */
  #error(e: Error): void {
    if (this.listenerCount('error') > 0) this.emit('error', e);
    else console.error(`penstock: queue "${this.name}": ${e.message}`);
  }
}

function back(ms: number): Ending {
  const seconds = Math.min(604_800, Math.max(0, Math.ceil(ms / 1000)));
  return { NextState: 'QUEUED', ...(seconds ? { Delay: seconds } : {}) };
}
