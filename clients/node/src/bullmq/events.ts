import { backoff, pause, sleep, transient } from '../backoff.js';
import type { Client } from '../client.js';
import { ApiError } from '../errors.js';
import { refuseUnknown } from '../settings.js';
import { segment } from '../wire.js';
import { bus } from './bus.js';
import { clientOf, prepare, type Connection } from './connection.js';
import { Emitter } from './emitter.js';
import { result } from './job.js';
import { find, stateOf } from './standing.js';

export interface QueueEventsOptions {
  connection?: Connection;
  autorun?: boolean;
  /** ms between two looks at the broker; default 250. */
  pollInterval?: number;
  prefix?: string;
  lastEventId?: string;
  blockingTimeout?: number;
  telemetry?: unknown;
  skipVersionCheck?: boolean;
}

const options = new Set(['connection', 'autorun', 'pollInterval', 'prefix', 'lastEventId', 'blockingTimeout', 'telemetry', 'skipVersionCheck']);

type Json = Record<string, unknown>;

/** Pages of open jobs that one look reads. */
const mostPages = 20;
/** Jobs that are followed. */
const mostJobs = 20_000;

interface Followed {
  state: string;
  attempts: number;
  lost: number;
}

/**
 * QueueEvents tells what becomes of the jobs of a queue, whichever process works on them. It looks at
 * the lists of the broker, so nothing is kept for it there, and an event that falls between two looks
 * (a job that is active for a moment) is not told. The end of each job is.
 */
export class QueueEvents extends Emitter {
  readonly name: string;
  readonly client: Client;
  readonly #own: boolean;
  readonly #interval: number;
  readonly #end = new AbortController();
  readonly #jobs = new Map<string, Followed>();
  readonly #from = new Date().toISOString();
  #last = '';
  #run: Promise<void> | undefined;
  #ready: Promise<void> | undefined;
  #poke: (() => void) | undefined;
  readonly #progress = (e: { queue: string; jobId: string; data: unknown }): void => {
    if (e.queue === this.name) this.emit('progress', { jobId: e.jobId, data: e.data });
  };
  readonly #ended = (e: { queue: string }): void => {
    if (e.queue === this.name) this.#poke?.();
  };

  constructor(name: string, opts: QueueEventsOptions = {}) {
    super();
    refuseUnknown('QueueEvents', opts, options);
    this.name = segment('queue', name);
    this.#interval = Math.max(20, opts.pollInterval ?? 250);
    ({ client: this.client, own: this.#own } = clientOf(opts.connection));
    bus.on('progress', this.#progress);
    bus.on('ended', this.#ended);
    if (opts.autorun !== false) queueMicrotask(() => void this.run().catch(() => undefined));
  }

  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  async waitUntilReady(): Promise<Client> {
    void this.run().catch(() => undefined);
    await this.#begin();
    return this.client;
  }

  /** The jobs that are open at the start are followed as well. */
  #begin(): Promise<void> {
    this.#ready ??= (async () => {
      await prepare(this.client, this.name);
      await this.#open(true);
    })();
    return this.#ready;
  }

  async #work(): Promise<void> {
    let failures = 0;
    while (!this.#end.signal.aborted) {
      try {
        await this.#begin();
        await this.#look();
        failures = 0;
        await this.#rest(this.#jobs.size > 0 ? this.#interval : this.#interval * 2);
      } catch (e) {
        if (this.#end.signal.aborted) return;
        this.#ready = this.#jobs.size > 0 ? this.#ready : undefined;
        this.#error(e as Error);
        if (!transient(e) && e instanceof ApiError && (e.status === 401 || e.status === 403)) throw e;
        await sleep(pause(e, failures++) + backoff(0), this.#end.signal);
      }
    }
  }

  /** Waits for the next look; a worker of this process that ends a job makes it shorter. */
  async #rest(ms: number): Promise<void> {
    const end = new AbortController();
    const stop = (): void => end.abort();
    this.#poke = stop;
    this.#end.signal.addEventListener('abort', stop);
    await sleep(ms, end.signal);
    this.#end.signal.removeEventListener('abort', stop);
    this.#poke = undefined;
  }

  async #look(): Promise<void> {
    await this.#added();
    const over = await this.#open(false);
    const had = this.#jobs.size > 0;
    for (const id of over) {
      await this.#over(id);
      if (this.#end.signal.aborted) return;
    }
    if (had && this.#jobs.size === 0) this.emit('drained');
  }

  /** Messages that came since the last look, also those that are over by now. */
  async #added(): Promise<void> {
    const from = this.#last ? `first=${this.#last}` : `from=${encodeURIComponent(this.#from)}`;
    let next = `/channel/${this.name}/messages?consumer=${this.name}&limit=100&${from}`;
    for (let n = 0; next && n < mostPages; n++) {
      const page = await this.#get(next);
      for (const link of (page['Result'] ?? []) as string[]) {
        const id = link.split('/').pop()!;
        if (id !== this.#last) this.#follow(id);
        this.#last = id;
      }
      next = String((page['Pages'] as Json | undefined)?.['next'] ?? '');
    }
  }

  async #get(path: string): Promise<Json> {
    try {
      return await this.client.manage.get(path, { channel: this.name, consumer: this.name });
    } catch (e) {
      if (!(e instanceof ApiError) || e.status >= 500 || !this.#last || !path.includes('first=')) throw e;
      this.#last = ''; // retention has removed the message from which the list went on
      return {};
    }
  }

  #follow(id: string, state = 'waiting', attempts = 0, lost = 0): void {
    if (this.#jobs.has(id) || this.#jobs.size >= mostJobs) return;
    this.#jobs.set(id, { state, attempts, lost });
    this.emit('added', { jobId: id, name: '' });
    this.emit('waiting', { jobId: id });
  }

  /** Looks at the open jobs, and returns those that were followed and are open no more. */
  async #open(first: boolean): Promise<string[]> {
    const before = [...this.#jobs.keys()];
    const seen = new Set<string>();
    let next = `/channel/${this.name}/consumer/${this.name}/jobs?limit=100`;
    let n = 0;
    for (; next && n < mostPages; n++) {
      const page = await this.#get(next);
      for (const job of (page['Result'] ?? []) as Json[]) {
        const id = String(job['MessageURL']).split('/').pop()!;
        seen.add(id);
        this.#stands(id, job, first);
      }
      next = String((page['Pages'] as Json | undefined)?.['next'] ?? '');
    }
    // Beyond the pages that were read nothing is known.
    return next ? [] : before.filter((id) => !seen.has(id));
  }

  #stands(id: string, job: Json, first: boolean): void {
    const [state, attempts, lost] = [stateOf(job), Number(job['Attempts']) || 0, Number(job['LeasesLost']) || 0];
    const was = this.#jobs.get(id);
    if (!was) {
      if (first) this.#jobs.set(id, { state, attempts, lost });
      else this.#follow(id, 'waiting', attempts, lost);
      if (first) return;
    }
    const held = this.#jobs.get(id);
    if (!held) return;
    if (lost > held.lost) this.emit('stalled', { jobId: id });
    if (state === 'active' && (held.state !== 'active' || attempts > held.attempts)) this.emit('active', { jobId: id, prev: held.state });
    if (state === 'delayed' && held.state !== 'delayed') this.emit('delayed', { jobId: id, delay: Date.parse(String(job['NextAttemptAt'])) });
    if (state === 'waiting' && held.state !== 'waiting') this.emit('waiting', { jobId: id, prev: held.state });
    Object.assign(held, { state, attempts, lost });
  }

  async #over(id: string): Promise<void> {
    const s = await find({ name: this.name, client: this.client }, id);
    if (s && s.state !== 'completed' && s.state !== 'failed' && s.state !== 'unknown') return; // it is open again
    this.#jobs.delete(id);
    if (s?.state === 'completed') this.emit('completed', { jobId: id, returnvalue: await result({ name: this.name, client: this.client }, id), prev: 'active' });
    else if (s?.state === 'failed') {
      this.emit('failed', { jobId: id, failedReason: s.failedReason, prev: 'active' });
      this.emit('retries-exhausted', { jobId: id, attemptsMade: String(s.attempts) });
    }
  }

  #error(e: Error): void {
    if (this.listenerCount('error') > 0) this.emit('error', e);
    else console.error(`penstock: events of queue "${this.name}": ${e.message}`);
  }

  async close(): Promise<void> {
    this.#end.abort();
    bus.off('progress', this.#progress);
    bus.off('ended', this.#ended);
    await this.#run?.catch(() => undefined);
    if (this.#own) await this.client.close();
  }

  disconnect(): Promise<void> {
    return this.close();
  }
}
