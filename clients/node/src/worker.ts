import { Client } from './client.js';
import { ConfigError, isA, LeaseLost } from './errors.js';
import type { JobPayload, LeasedJob } from './job.js';
import { Loop, type Ending } from './loop.js';
import { reply } from './response.js';
import { refuseUnknown, type ClientOptions } from './settings.js';

/** A job as its handler gets it. */
export interface Task extends JobPayload {
  /** ID of the message: the same at every attempt. */
  id: string;
  /** From 1; lost leases count. */
  attempt: number;
  job: LeasedJob;
  /** Aborts with LeaseLost when the lease is lost, and with Stopped when the worker gives the job back. */
  signal: AbortSignal;
}

/** Does a job. What it returns is the response to the message, where the consumer has responses. */
export type Handler = (task: Task) => unknown;

export interface WorkerOptions {
  client?: Client | ClientOptions;
  /** Jobs at a time; default 4. */
  concurrency?: number;
  /** Length of a lease, ms; default that of the client. */
  lease?: number;
  /** ms that a claim waits at the broker; default 20 000. */
  wait?: number;
  /** Told of errors that do not end the worker; default: written to stderr. */
  onError?: (error: Error) => void;
}

const options = new Set(['client', 'concurrency', 'lease', 'wait', 'onError']);

/** An unknown task goes back for a random time, so that another version of the worker finds it soon. */
const unknownDelay = (): number => 10 + Math.floor(Math.random() * 11);

/** Worker works for a queue, with one handler for each task. */
export class Worker {
  readonly client: Client;
  readonly queue: string;
  readonly #own: boolean;
  readonly #handlers: Map<string, Handler>;
  readonly #onError: (error: Error) => void;
  readonly #loop: Loop;
  readonly #noted = new Set<string>();
  #closing: Promise<void> | undefined;

  constructor(queue: string, handlers: Record<string, Handler>, o: WorkerOptions = {}) {
    refuseUnknown('Worker', o, options);
    const concurrency = o.concurrency ?? 4;
    if (!Number.isInteger(concurrency) || concurrency < 1) throw new ConfigError('concurrency must be a whole number from 1');
    this.queue = queue;
    this.#own = !(o.client instanceof Client);
    this.client = o.client instanceof Client ? o.client : new Client(o.client ?? {});
    this.#handlers = new Map(Object.entries(handlers));
    this.#onError = o.onError ?? ((e) => console.error(`penstock: ${e.message}`));
    this.#loop = new Loop(this.client, {
      channel: queue, consumer: queue, concurrency, lease: o.lease ? Math.ceil(o.lease / 1000) * 1000 : this.client.settings.lease,
      wait: o.wait ?? 20_000, worker: this.client.settings.worker, tasks: Object.keys(handlers),
      run: (job, signal) => this.#run(job, signal), error: this.#onError,
    });
  }

  /** Works until close. Rejects with the error that ends the worker, such as a wrong token. */
  run(): Promise<void> {
    return this.#loop.run();
  }

  /** Stops in order; called again, or with true, the jobs that run are given back at once. */
  async close(force = false): Promise<void> {
    if (force || this.#closing) this.#loop.kill();
    this.#closing ??= this.#loop.stop().then(async () => {
      if (this.#own) await this.client.close();
    });
    await this.#closing;
  }

  async #run(job: LeasedJob, signal: AbortSignal): Promise<Ending | undefined> {
    const call = job.call();
    if (!call) return { NextState: 'DEAD', Reason: 'the payload is no job' };
    const handler = this.#handlers.get(call.task);
    if (!handler) return this.#unknown(call.task);
    try {
      const result = await handler({ ...call, id: job.messageId, attempt: job.attempt, job, signal });
      const json = result === undefined || signal.aborted ? undefined : JSON.stringify(result);
      return { NextState: 'DELIVERED', ...(json === undefined ? {} : await reply(job, json)) };
    } catch (e) {
      return failure(e);
    }
  }

  #unknown(task: string): Ending {
    if (!this.#noted.has(task) && this.#noted.size < 1000) {
      this.#noted.add(task);
      this.#onError(new ConfigError(`queue "${this.queue}": no handler for the task ${JSON.stringify(task)}; its jobs are given back`));
    }
    return { NextState: 'QUEUED', Delay: unknownDelay() };
  }
}

/** What an error of a handler means for its job. */
export function failure(e: unknown): Ending {
  const error = e instanceof Error ? e : new Error(String(e));
  const reason = { Reason: error.message.slice(0, 255) || error.name, Detail: (error.stack ?? '').slice(0, 1024) };
  if (isA(e, 'Reject') || (e as { retryable?: unknown } | null)?.retryable === false) return { NextState: 'DEAD', ...reason };
  const delay = Math.ceil(((e as { delay?: number }).delay ?? 0) / 1000);
  if (isA(e, 'GiveBack')) return { NextState: 'QUEUED', Delay: delay, Reason: reason.Reason };
  if (isA(e, 'Retry')) return { NextState: 'QUEUED', Failed: true, Delay: delay, ...reason };
  return { NextState: 'QUEUED', Failed: true, ...reason };
}

export { LeaseLost };
