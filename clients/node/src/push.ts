import { createHmac, timingSafeEqual } from 'node:crypto';
import { ConfigError, isA } from './errors.js';

/** A delivery of the broker whose signature is right. */
export class PushMessage {
  constructor(
    /** The bytes as they came. */
    readonly payload: Buffer,
    /** Headers of the request, with names in lower case. */
    readonly headers: Record<string, string>,
  ) {}

  /** The same at every attempt, redrive and replay. */
  get messageId(): string {
    return this.headers['x-broker-message-id'] ?? this.headers['webhook-id'] ?? '';
  }
  /** From 1; 0 where the consumer has identity=minimal. */
  get attempt(): number {
    return Number(this.headers['x-broker-attempt']) || 0;
  }
  get channel(): string {
    return this.headers['x-broker-channel-id'] ?? '';
  }
  get consumer(): string {
    return this.headers['x-broker-consumer-id'] ?? '';
  }
  get task(): string {
    return this.headers['x-broker-task'] ?? '';
  }
  get contentType(): string {
    return this.headers['content-type'] ?? '';
  }
  text(): string {
    return this.payload.toString('utf8');
  }
  json(): any {
    return JSON.parse(this.text());
  }
}

/** What it returns is the answer to the delivery, as JSON: a response, where the consumer keeps them. */
export type PushHandler = (message: PushMessage) => unknown;

/** Remembers the messages that are done. A store that several processes share makes it hold for all of them. */
export interface Store {
  has(id: string): boolean | Promise<boolean>;
  add(id: string): void | Promise<void>;
}

export interface PushOptions {
  /** The signing secret of the consumer, `whsec_...`; several while it is changed. */
  secret: string | readonly string[];
  /** Seconds that the time of a request may be off; default 300. */
  tolerance?: number;
  /** Where messages that are done are remembered; default: 100 000 in memory. false: nowhere. */
  store?: Store | false;
  /** Bytes that a payload may have; default 16 MiB. */
  maxBody?: number;
  /** Told of errors of functions, and of requests that are refused; default: written to stderr. */
  onError?: (error: Error) => void;
}

/** The answer to a delivery. */
export interface PushAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** MemoryStore remembers the newest messages of this process. */
export class MemoryStore implements Store {
  readonly #ids = new Set<string>();

  constructor(readonly most = 100_000) {}

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  add(id: string): void {
    this.#ids.add(id);
    if (this.#ids.size > this.most) this.#ids.delete(this.#ids.values().next().value as string);
  }
}

/** Receiver verifies deliveries, and calls the function of their channel once for each message. */
export class Receiver {
  readonly maxBody: number;
  readonly #keys: Buffer[];
  readonly #tolerance: number;
  readonly #store: Store | undefined;
  readonly #onError: (error: Error) => void;
  readonly #handlers = new Map<string, PushHandler>();
  readonly #running = new Map<string, Promise<PushAnswer>>();

  constructor(o: PushOptions) {
    const secrets = typeof o.secret === 'string' ? [o.secret] : (o.secret ?? []);
    if (secrets.length === 0) throw new ConfigError('consumer needs the secret of the consumer: whsec_...');
    this.#keys = secrets.map(keyOf);
    this.#tolerance = o.tolerance ?? 300;
    this.#store = o.store === false ? undefined : (o.store ?? new MemoryStore());
    this.maxBody = o.maxBody ?? 16 << 20;
    this.#onError = o.onError ?? ((e) => console.error(`penstock: ${e.message}`));
  }

  on(channel: string, handler: PushHandler): this {
    if (typeof handler !== 'function') throw new ConfigError(`the handler of ${JSON.stringify(channel)} must be a function`);
    this.#handlers.set(channel, handler);
    return this;
  }

  /** The answer to a request with these headers and bytes. */
  async answer(given: Record<string, string | string[] | undefined>, body: Buffer): Promise<PushAnswer> {
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(given)) {
      if (value !== undefined) headers[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
    }
    const wrong = this.#wrong(headers, body);
    if (wrong) return this.refuse(401, wrong);
    const message = new PushMessage(body, headers);
    const handler = this.#handlers.get(message.channel) ?? (message.channel === '' && this.#handlers.size === 1 ? [...this.#handlers.values()][0] : undefined);
    if (!handler) return this.refuse(404, `no function is on the channel ${JSON.stringify(message.channel)}`);
    // The signed ID names the message; a replay of it is another delivery.
    const id = [message.channel, message.consumer, headers['webhook-id'], headers['x-broker-replay'] ?? ''].join(' ');
    const running = this.#running.get(id);
    if (running) return running;
    const run = this.#run(id, handler, message).finally(() => this.#running.delete(id));
    this.#running.set(id, run);
    return run;
  }

  async #run(id: string, handler: PushHandler, message: PushMessage): Promise<PushAnswer> {
    try {
      if (await this.#store?.has(id)) return { status: 200, headers: {}, body: '' };
      const value = await handler(message);
      await this.#store?.add(id);
      if (value === undefined) return { status: 204, headers: {}, body: '' };
      return { status: 200, headers: { 'content-type': 'application/json' }, body: JSON.stringify(value) };
    } catch (e) {
      if (isA(e, 'Gone')) return { status: 410, headers: {}, body: 'gone' };
      if (isA(e, 'TooManyRequests')) return { status: 429, headers: { 'retry-after': String((e as { retryAfter: number }).retryAfter) }, body: 'too many requests' };
      this.#onError(e instanceof Error ? e : new Error(String(e)));
      return { status: isA(e, 'Reject') ? 422 : 500, headers: {}, body: 'the message could not be processed' };
    }
  }

  refuse(status: number, why: string): PushAnswer {
    this.#onError(new Error(`a delivery is refused with ${status}: ${why}`));
    return { status, headers: {}, body: why };
  }

  /** Why a request is not of the broker, or undefined. */
  #wrong(headers: Record<string, string>, body: Buffer): string | undefined {
    const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signatures } = headers;
    if (!id || !time || !signatures) return 'the request is not signed';
    if (!/^\d{1,12}$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > this.#tolerance) return 'the time of the request is too far off';
    const given = signatures.split(' ').filter((s) => s.startsWith('v1,')).slice(0, 16).map((s) => Buffer.from(s.slice(3), 'base64'));
    for (const key of this.#keys) {
      const right = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest();
      if (given.some((s) => s.length === right.length && timingSafeEqual(s, right))) return undefined;
    }
    return 'the signature is wrong';
  }
}

function keyOf(secret: string): Buffer {
  const key = typeof secret === 'string' && /^whsec_[A-Za-z0-9+/]+={0,2}$/.test(secret) ? Buffer.from(secret.slice(6), 'base64') : undefined;
  if (!key || key.length < 24 || key.length > 64) throw new ConfigError('the secret must be whsec_ and base64 of 24 to 64 bytes');
  return key;
}
