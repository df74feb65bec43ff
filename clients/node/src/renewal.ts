import { Worker } from 'node:worker_threads';
import type { Client } from './client.js';
import { renewalThread } from './renewalthread.js';
import { HttpTransport } from './transport.js';

/** Leases are renewed when a third of them is over. */
const part = 3;

/** What the thread is told and tells. */
export type ToThread =
  | { do: 'add'; id: string; lease: string; since: number }
  | { do: 'remove'; id: string; lease: string }
  | { do: 'headers'; headers: Record<string, string> }
  | { do: 'end' };
export type FromThread = { ready: true } | { lost: string; lease: string; why: string } | { refused: true };

export interface Renewing {
  client: Client;
  channel: string;
  consumer: string;
  worker: string;
  /** Length of the leases, ms. */
  lease: number;
  /** The lease of a job is lost: the broker says so, or it ended before the broker was reached. */
  lost(id: string, lease: string, why: string): void;
}

export interface Renewal {
  /** Resolves when leases can be renewed whatever this thread does. Throws where the tokens cannot be got. */
  ready(): Promise<void>;
  add(id: string, lease: string, since: number): void;
  remove(id: string, lease: string): void;
  close(): Promise<void>;
}

/**
 * renew keeps leases from a worker thread, so that user code that blocks the event loop loses no lease.
 * A client with a transport of its own, such as that of the tests, is renewed in this thread.
 */
export function renew(o: Renewing): Renewal {
  return o.client.transport instanceof HttpTransport ? new Threaded(o) : new Inline(o);
}

class Threaded implements Renewal {
  #thread: Worker | undefined;
  readonly #o: Renewing;
  readonly #held = new Map<string, { lease: string; since: number }>();
  #closed = false;
  #listens: Promise<void> = Promise.resolve();

  constructor(o: Renewing) {
    this.#o = o;
  }

  async ready(): Promise<void> {
    const headers = await this.#headers();
    if (this.#closed) return;
    this.#start();
    this.#tell({ do: 'headers', headers });
    await this.#listens;
  }

  add(id: string, lease: string, since: number): void {
    this.#held.set(id, { lease, since });
    this.#start();
    this.#tell({ do: 'add', id, lease, since });
  }

  remove(id: string, lease: string): void {
    if (this.#held.get(id)?.lease === lease) this.#held.delete(id);
    if (this.#thread) this.#tell({ do: 'remove', id, lease });
  }

  async close(): Promise<void> {
    this.#closed = true;
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.terminate();
  }

  #tell(m: ToThread): void {
    this.#thread?.postMessage(m);
  }

  #start(): void {
    if (this.#thread || this.#closed) return;
    const { client: c, channel, consumer, lease } = this.#o;
    const s = c.settings;
    const thread = new Worker(`(${renewalThread.toString()})(require)`, {
      eval: true,
      workerData: {
        url: s.url.href, path: `/channel/${channel}/consumer/${consumer}/jobs`, lease, every: lease / part,
        timeout: Math.min(s.timeout, Math.max(1000, lease / part)), headers: {},
      },
      // The thread runs this one function: no flags and loaders of the program.
      execArgv: [],
    });
    this.#thread = thread;
    thread.unref();
    let heard = (): void => undefined;
    this.#listens = new Promise((resolve) => (heard = resolve));
    thread.on('message', (m: FromThread) => {
      if ('lost' in m) this.#o.lost(m.lost, m.lease, m.why);
      else if ('refused' in m) void this.#refused();
      else heard();
    });
    thread.on('exit', () => heard());
    // A thread that ended by an error is replaced, and gets all that is held.
    thread.on('error', () => this.#again(thread));
    thread.on('exit', () => this.#again(thread));
  }

  #again(thread: Worker): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    if (this.#closed || this.#held.size === 0) return;
    this.#start();
    void this.ready().catch(() => undefined);
    for (const [id, h] of this.#held) this.#tell({ do: 'add', id, ...h });
  }

  async #headers(): Promise<Record<string, string>> {
    const { client, channel, consumer, worker } = this.#o;
    return {
      'Content-Type': 'application/json',
      'X-Broker-Worker': worker,
      'X-Broker-Channel-Token': await client.resources.channel(channel),
      'X-Broker-Consumer-Token': await client.resources.consumer(channel, consumer),
    };
  }

  /** The broker refuses the tokens of the thread: they are asked anew. */
  async #refused(): Promise<void> {
    try {
      await this.#o.client.update(this.#o.channel, this.#o.consumer, []); // reads again what is stale
      this.#tell({ do: 'headers', headers: await this.#headers() });
    } catch {
      // The thread goes on with what it has, and says again that it is refused.
    }
  }
}

/** Inline renews in the thread of the program. */
class Inline implements Renewal {
  readonly #o: Renewing;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(o: Renewing) {
    this.#o = o;
  }

  async ready(): Promise<void> {
    await this.#o.client.resources.consumer(this.#o.channel, this.#o.consumer);
  }

  add(id: string, lease: string): void {
    clearInterval(this.#timers.get(id));
    const timer = setInterval(() => void this.#extend(id, lease), this.#o.lease / part);
    timer.unref();
    this.#timers.set(id, timer);
  }

  remove(id: string): void {
    clearInterval(this.#timers.get(id));
    this.#timers.delete(id);
  }

  close(): Promise<void> {
    for (const id of [...this.#timers.keys()]) this.remove(id);
    return Promise.resolve();
  }

  async #extend(id: string, lease: string): Promise<void> {
    const { client, channel, consumer, worker } = this.#o;
    try {
      const [r] = await client.update(channel, consumer, [{ ID: id, Lease: lease, NextState: 'INFLIGHT', Timeout: this.#o.lease / 1000 }], { worker });
      if (r?.code === 'lease_lost') this.#o.lost(id, lease, 'the broker has given the job to another worker');
    } catch {
      // The next turn comes before the lease ends.
    }
  }
}
