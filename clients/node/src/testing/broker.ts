import { ConnectionError } from '../errors.js';
import type { Answer, Exchange, Transport } from '../transport.js';
import { nextTime } from './cron.js';
import { route } from './routes.js';

/** A message in the memory of the test broker, with its job for the pull consumer of its channel. */
export interface Stored {
  id: string;
  jobId: string;
  channel: string;
  payload: string;
  contentType: string;
  headers: Record<string, string>;
  priority: number;
  at: number;
  state: 'QUEUED' | 'INFLIGHT' | 'DELIVERED' | 'DEAD';
  due: number;
  attempts: number;
  leasesLost: number;
  givenBack: number;
  lease: string;
  changedAt: number;
  reason: string;
  detail: string;
  response: string | undefined;
  worker: string;
}

/** A message that is sent later. */
export interface Later extends Pick<Stored, 'id' | 'channel' | 'payload' | 'contentType' | 'headers' | 'priority'> {
  at: number;
  recurrence: string;
  occurrence: number;
}

export interface Channel {
  consumers: Set<string>;
  paused: boolean;
  policy: Record<string, string>;
  messages: Map<string, Stored>;
  later: Map<string, Later>;
}

/**
 * TestBroker is a broker in memory for tests: it is given to a client, a queue or a worker as its
 * connection. Its time stands still until it is advanced. It has the routes that queues and workers
 * use; what it does not know is an error that says so.
 */
export class TestBroker implements Transport {
  readonly channels = new Map<string, Channel>();
  #now: number;
  #n = 0;
  readonly #waiting = new Set<() => void>();
  #changes = 0;

  constructor(start: Date | number = Date.now()) {
    this.#now = new Date(start).getTime();
  }

  /** The time of the broker, ms. */
  now(): number {
    return this.#now;
  }

  /** An ID that ascends. */
  next(): string {
    return `t${(++this.#n).toString(36).padStart(10, '0')}`;
  }

  async send(x: Exchange): Promise<Answer> {
    await new Promise((go) => setImmediate(go));
    if (x.signal?.aborted || x.leave?.aborted) throw new ConnectionError('the client ended the request', 'closed');
    const { status, headers = {}, json } = await route(this, x);
    const body = typeof json === 'string' ? json : json === undefined ? '' : JSON.stringify(json);
    const type = status >= 400 ? 'application/problem+json' : 'application/json';
    return { status, headers: { 'content-type': type, ...headers }, body: Buffer.from(body) };
  }

  /** Nothing is open: the broker lives as long as the test wants. */
  close(): void {}

  /** Moves the time on, step by step; at each step the workers do what is due. */
  async advance(time: number | string): Promise<void> {
    const end = this.#now + msOf(time);
    await this.idle();
    for (;;) {
      const next = this.#next();
      if (next === undefined || next > end) break;
      this.#now = Math.max(this.#now, next);
      this.#send();
      await this.idle();
    }
    this.#now = end;
    await this.idle();
  }

  /** Resolves when the workers have done what is due: no job is in flight, and none goes out any more. */
  async idle(): Promise<void> {
    for (let quiet = 0, seen = -1; quiet < 25; ) {
      await new Promise((go) => setTimeout(go, 1));
      const busy = [...this.channels.values()].some((c) => [...c.messages.values()].some((m) => m.state === 'INFLIGHT'));
      if (busy || seen !== this.#changes) quiet = 0;
      else quiet++;
      seen = this.#changes;
    }
  }

  /** The workers of all jobs in flight have died: their leases end. */
  loseLeases(): void {
    for (const c of this.channels.values()) {
      for (const m of c.messages.values()) {
        if (m.state === 'INFLIGHT') Object.assign(m, { state: 'QUEUED', lease: '', due: this.#now, leasesLost: m.leasesLost + 1 });
      }
    }
    this.changed();
  }

  /** The messages of a channel, oldest first. */
  messages(channel: string): Stored[] {
    return [...(this.channels.get(channel)?.messages.values() ?? [])];
  }

  /** Wakes the claims and the waits for responses. */
  changed(): void {
    this.#changes++;
    for (const wake of [...this.#waiting]) wake();
  }

  /** Waits for a change, or for the end of the request. */
  change(x: Exchange, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#waiting.delete(end);
        clearTimeout(timer);
        x.signal?.removeEventListener('abort', end);
        x.leave?.removeEventListener('abort', end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#waiting.add(end);
      x.signal?.addEventListener('abort', end);
      x.leave?.addEventListener('abort', end);
    });
  }

  /** When the next thing happens. */
  #next(): number | undefined {
    let next: number | undefined;
    const at = (t: number): void => void (next = next === undefined ? t : Math.min(next, t));
    for (const c of this.channels.values()) {
      for (const l of c.later.values()) at(l.at);
      for (const m of c.messages.values()) if (m.state === 'QUEUED' && m.due > this.#now) at(m.due);
    }
    return next;
  }

  /** Sends the messages whose time has come. */
  #send(): void {
    for (const c of this.channels.values()) {
      for (const l of [...c.later.values()]) {
        if (l.at > this.#now) continue;
        this.store(c, { ...l, id: l.recurrence ? `${l.id}.${l.occurrence}` : l.id });
        const next = l.recurrence ? nextTime(l.recurrence, this.#now, l.occurrence + 1) : undefined;
        if (next === undefined) c.later.delete(l.id);
        else Object.assign(l, { at: next, occurrence: l.occurrence + 1 });
      }
    }
    this.changed();
  }

  /** Stores a message with its job. */
  store(c: Channel, m: Pick<Stored, 'id' | 'channel' | 'payload' | 'contentType' | 'headers' | 'priority'>): Stored {
    const { id, channel, payload, contentType, headers, priority } = m;
    const stored: Stored = {
      id, channel, payload, contentType, headers, priority, jobId: this.next(), at: this.#now, state: 'QUEUED', due: this.#now, attempts: 0,
      leasesLost: 0, givenBack: 0, lease: '', changedAt: this.#now, reason: '', detail: '', response: undefined, worker: '',
    };
    c.messages.set(id, stored);
    this.changed();
    return stored;
  }
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** ms of a number of ms, or of a text such as 90s or 1h30m; whole numbers in texts are seconds. */
export function msOf(time: number | string): number {
  if (typeof time === 'number') return time;
  if (/^\d+$/.test(time)) return Number(time) * 1000;
  const parts = [...time.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  if (parts.length === 0 || parts.map((p) => p[0]).join('') !== time) throw new Error(`${JSON.stringify(time)} is no duration: 90s, 1h30m`);
  return parts.reduce((sum, p) => sum + Number(p[1]) * units[p[2]!]!, 0);
}
