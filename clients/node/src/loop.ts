import { pause, sleep, transient } from './backoff.js';
import type { Client } from './client.js';
import { ApiError, ConfigError, isA, LeaseLost, PenstockError, Stopped } from './errors.js';
import type { LeasedJob, Update } from './job.js';
import { renew, type Renewal } from './renewal.js';
import { Reporter, type Outcome } from './reporter.js';
import { version } from './version.js';

/** What becomes of a job when its handler has ended. */
export type Ending = Pick<Update, 'NextState' | 'Delay' | 'Failed' | 'Reason' | 'Detail' | 'Response' | 'ResponseType'>;

export interface LoopOptions {
  channel: string;
  consumer: string;
  concurrency: number;
  /** Length of the leases, ms. */
  lease: number;
  /** ms that a claim waits at the broker. */
  wait: number;
  worker: string;
  tasks?: string[];
  /** Does a job. It never throws; undefined: the lease is lost and nothing is reported. */
  run(job: LeasedJob, signal: AbortSignal): Promise<Ending | undefined>;
  /** The broker has taken, or refused, what became of the job. */
  reported?(job: LeasedJob, ending: Ending, outcome: Outcome): void;
  /** The job is no more this worker's, whatever became of it; it is the last that is told of it. */
  over?(job: LeasedJob): void;
  /** An error that does not end the worker. */
  error(e: Error): void;
  /** A claim was answered: so many jobs, and so many are left, if that is known. */
  claimed?(jobs: number, backlog: number | undefined): void;
}

interface Running {
  job: LeasedJob;
  abort: AbortController;
  /** The worker's end gave the job back: its handler's end counts for nothing. */
  given: boolean;
}

/** How long handlers that are told to end have for it, and the last reports; ms. */
const patience = 1_000;
const reporting = 10_000;

/** Codes of answers that end a worker: a setting is wrong, and no repetition helps. */
function fatal(e: unknown): boolean {
  if (e instanceof ConfigError) return true;
  if (!(e instanceof PenstockError) || transient(e)) return false;
  return e.status >= 400 && e.status < 500;
}

/**
 * Loop claims jobs, renews their leases, runs them and reports what became of them, as
 * docs/explain/worker-protocol.md says.
 */
export class Loop {
  readonly #client: Client;
  readonly #o: LoopOptions;
  readonly #renewal: Renewal;
  readonly #reporter: Reporter;
  readonly #running = new Map<string, Running>();
  readonly #leave = new AbortController();
  /** Ends the claim that waits: at the end, and at a pause. */
  #claim = new AbortController();
  #concurrency: number;
  #stopping = false;
  #paused = false;
  #free: (() => void) | undefined;
  #loop: Promise<void> | undefined;
  #handlers = new Set<Promise<void>>();
  /** Not before this time (performance.now) is a job claimed. */
  #holdUntil = 0;
  #wake = new AbortController();
  #killed: Promise<void> | undefined;
  #given: () => void = () => undefined;
  readonly #gaveBack = new Promise<void>((go) => (this.#given = go));
  readonly #over = new AbortController();

  constructor(client: Client, o: LoopOptions) {
    this.#client = client;
    this.#o = o;
    this.#concurrency = o.concurrency;
    const { channel, consumer } = o;
    const worker = [o.worker, `version=${version}`, `slots=${o.concurrency}`, ...(o.tasks?.length ? [`tasks=${o.tasks.slice(0, 64).join(',')}`] : [])].join('; ');
    this.#o = { ...o, worker };
    this.#reporter = new Reporter(client, channel, consumer, worker, o.error);
    this.#renewal = renew({ client, channel, consumer, worker, lease: o.lease, lost: (id, lease, why) => this.#lost(id, lease, why) });
  }

  get running(): number {
    return this.#running.size;
  }

  get concurrency(): number {
    return this.#concurrency;
  }

  set concurrency(n: number) {
    this.#concurrency = n;
    this.#poke();
  }

  /** Works until close; rejects with the error that ends the worker, after its jobs have ended. */
  run(): Promise<void> {
    this.#loop ??= this.#work();
    return this.#loop;
  }

  /** Claims nothing until resume. Jobs that run go on. */
  pause(): void {
    this.#paused = true;
    this.#claim.abort();
  }

  resume(): void {
    this.#paused = false;
    this.#poke();
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** Claims nothing for so many ms. */
  hold(ms: number): void {
    this.#holdUntil = Math.max(this.#holdUntil, performance.now() + ms);
  }

  /** Resolves when no job runs. */
  async idle(): Promise<void> {
    while (this.#handlers.size > 0) await Promise.allSettled([...this.#handlers]);
  }

  /** Stops: nothing is claimed any more, jobs that run end and are reported. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#leave.abort();
    this.#claim.abort();
    this.#poke();
    await this.#loop?.catch(() => undefined);
    await this.#finish();
  }

  /** Tells the jobs that run to end, and gives back those that have not ended a second later. */
  kill(): void {
    for (const r of this.#running.values()) if (!r.abort.signal.aborted) r.abort.abort(new Stopped());
    this.#killed ??= sleep(patience, this.#over.signal).then(() => {
      for (const r of this.#running.values()) this.#return(r);
      this.#given();
    });
  }

  #return(r: Running): void {
    if (r.given) return;
    r.given = true;
    this.#renewal.remove(r.job.id, r.job.lease);
    if (!isA(r.abort.signal.reason, 'LeaseLost')) void this.#reporter.add({ ID: r.job.id, Lease: r.job.lease, NextState: 'QUEUED' });
  }

  async #finish(): Promise<void> {
    while (this.#handlers.size > 0 && ![...this.#running.values()].every((r) => r.given)) {
      await Promise.race([Promise.allSettled([...this.#handlers]), this.#gaveBack]);
    }
    this.#over.abort();
    const end = performance.now() + reporting;
    while (this.#reporter.open > 0 && performance.now() < end) await sleep(5);
    if (this.#reporter.open > 0) {
      this.#o.error(new PenstockError(`the broker did not take ${this.#reporter.open} reports; it gives these jobs to others`, 'not_reported'));
    }
    this.#reporter.abandon();
    await this.#renewal.close();
  }

  async #work(): Promise<void> {
    let failures = 0;
    let ready = false;
    try {
      while (!this.#stopping) {
        const free = await this.#slots();
        if (this.#stopping) return;
        if (free <= 0) continue;
        const began = performance.now();
        try {
          if (!ready) await this.#renewal.ready();
          ready = true;
          this.#claim = new AbortController();
          if (this.#stopping || this.#paused) continue;
          const { jobs, retryAfter, why, backlog } = await this.#client.claim(this.#o.channel, {
            consumer: this.#o.consumer, limit: free, wait: this.#o.wait, lease: this.#o.lease, worker: this.#o.worker,
            leave: this.#claim.signal,
          });
          failures = 0;
          if (jobs.length > 0 || !why) this.#o.claimed?.(jobs.length, backlog);
          jobs.forEach((job, i) => this.#take(job, i < free));
          if (jobs.length > 0) continue;
          // A broker that answers at once, without jobs and without a time, is not asked in a tight loop.
          const early = performance.now() - began < this.#o.wait / 2;
          const rest = retryAfter !== undefined ? Math.min(retryAfter, 3600) * 1000 + Math.random() * 100 : early ? 1000 : 0;
          if (rest > 0) await sleep(rest, this.#wakeSignal());
        } catch (e) {
          if (this.#stopping) return;
          if (this.#claim.signal.aborted) continue; // a pause
          if (fatal(e)) throw e;
          this.#o.error(e as Error);
          await sleep(pause(e, failures++), this.#leave.signal);
        }
      }
    } catch (e) {
      this.#stopping = true;
      await this.#finish();
      throw e;
    }
  }

  /** Waits for free slots, and returns their number. Moves that wait for the broker bound it too. */
  async #slots(): Promise<number> {
    for (;;) {
      if (this.#stopping) return 0;
      const hold = this.#holdUntil - performance.now();
      if (hold > 0) {
        await sleep(Math.min(hold, 1000), this.#leave.signal);
        continue;
      }
      await new Promise((go) => setImmediate(go)); // handlers that end together free their slots together
      if (this.#stopping) return 0; // what is awaited below would not come any more
      const free = this.#concurrency - this.#running.size;
      if (free > 0 && !this.#paused && !this.#stopping && !this.#reporter.stuck) return Math.min(free, 500);
      await new Promise<void>((go) => (this.#free = go));
    }
  }

  #poke(): void {
    const go = this.#free;
    this.#free = undefined;
    go?.();
    if (this.#stopping) this.#wake.abort();
  }

  #wakeSignal(): AbortSignal {
    return this.#wake.signal;
  }

  #take(job: LeasedJob, room: boolean): void {
    const had = this.#running.get(job.id);
    // The broker has given the job again while its handler still runs here: that lease was lost.
    if (had) this.#lose(had, 'the broker has given the job again');
    if (had || !room || this.#stopping) {
      void this.#reporter.add({ ID: job.id, Lease: job.lease, NextState: 'QUEUED', ...(had ? { Delay: Math.ceil(this.#o.lease / 1000) } : {}) });
      return;
    }
    const r: Running = { job, abort: new AbortController(), given: false };
    this.#running.set(job.id, r);
    this.#renewal.add(job.id, job.lease, monotonic());
    const done = this.#do(r).finally(() => {
      this.#handlers.delete(done);
      this.#o.over?.(job);
    });
    this.#handlers.add(done);
  }

  async #do(r: Running): Promise<void> {
    const { job } = r;
    let ending: Ending | undefined;
    try {
      ending = await this.#o.run(job, r.abort.signal);
    } catch (e) {
      this.#o.error(e as Error);
    }
    this.#running.delete(job.id);
    if (r.given) return this.#poke();
    if (ending && ending.NextState !== 'DELIVERED' && r.abort.signal.aborted) {
      // What fails after its lease was lost is not reported, and what was told to stop did not fail.
      ending = isA(r.abort.signal.reason, 'LeaseLost') ? undefined : { NextState: 'QUEUED' };
    }
    if (!ending) {
      this.#renewal.remove(job.id, job.lease);
      return this.#poke();
    }
    const reported = this.#reporter.add({ ID: job.id, Lease: job.lease, ...ending });
    this.#poke();
    const outcome = await reported;
    if (!outcome.ok && outcome.code === 'lease_lost') this.#o.error(new LeaseLost(`job ${job.messageId}: what became of it is not taken: the lease is lost`));
    this.#renewal.remove(job.id, job.lease); // kept until the broker has taken the report
    this.#poke();
    this.#o.reported?.(job, ending, outcome);
  }

  #lost(id: string, lease: string, why: string): void {
    const r = this.#running.get(id);
    if (r && r.job.lease === lease) this.#lose(r, why);
  }

  #lose(r: Running, why: string): void {
    if (!r.abort.signal.aborted) r.abort.abort(new LeaseLost(`the lease of the job is lost: ${why}`));
  }
}

/** ms of the clock that the renewal thread reads. */
function monotonic(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}

/** Reports whether an error is the broker's word that a lease is lost. */
export function leaseLost(e: unknown): boolean {
  return e instanceof LeaseLost || (e instanceof ApiError && e.code === 'lease_lost');
}
