import * as http from 'node:http';
import * as https from 'node:https';
import type { Socket } from 'node:net';
import { ConnectionError } from './errors.js';

/** One request of the client. */
export interface Exchange {
  method: string;
  /** Path and query, below the base address. */
  path: string;
  headers: Record<string, string>;
  body?: string | Uint8Array | undefined;
  /** ms for the whole exchange, from the first byte of the request to the last of the answer. */
  timeout: number;
  /** The request waits at the broker: it takes no place of those that do not. */
  waits?: boolean | undefined;
  /** Ends the request at once. */
  signal?: AbortSignal | undefined;
  /**
   * Tells the broker that the client leaves, and still takes an answer that is on its way: a claim
   * that ends so loses no lease.
   */
  leave?: AbortSignal | undefined;
}

/** The broker's answer; header names are lower case. */
export interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array;
}

/** What carries requests to a broker. */
export interface Transport {
  send(x: Exchange): Promise<Answer>;
  /** Ends all connections. */
  close(): void;
  /** The time of the broker, where it is not that of this machine; ms. */
  now?(): number;
}

/** An answer has at most so many bytes. */
export const maxAnswer = 64 << 20;

/** How long a client that leaves waits for an answer on its way, ms. A broker looks each second. */
const leaving = 2_500;

/** How long an unused connection is kept, ms. */
const idle = 4_000;

/**
 * HttpTransport speaks HTTP/1.1 by node:http. `fetch` of Node has no bound on its connections, cannot
 * end them when a client is closed, and cannot tell the broker that a claim leaves without losing the
 * answer on its way; an option `fetch` of the client takes its place where that does not matter.
 */
export class HttpTransport implements Transport {
  readonly #base: URL;
  readonly #module: typeof http | typeof https;
  readonly #agent: http.Agent;
  readonly #most: number;
  #busy = 0;
  readonly #queue: (() => void)[] = [];

  constructor(base: URL, maxConnections: number) {
    this.#base = base;
    this.#most = maxConnections;
    this.#module = base.protocol === 'https:' ? https : http;
    const options = { keepAlive: true, timeout: idle, scheduling: 'lifo', autoSelectFamily: true } as http.AgentOptions;
    this.#agent = new this.#module.Agent(options);
  }

  async send(x: Exchange): Promise<Answer> {
    if (x.waits) return this.#exchange(x);
    if (this.#busy >= this.#most) await new Promise<void>((go) => this.#queue.push(go));
    else this.#busy++;
    try {
      return await this.#exchange(x);
    } finally {
      const next = this.#queue.shift();
      if (next) next();
      else this.#busy--;
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #exchange(x: Exchange): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (x.signal?.aborted || x.leave?.aborted) return reject(ended(x));
      const body = typeof x.body === 'string' ? Buffer.from(x.body) : x.body;
      const headers: Record<string, string> = { ...x.headers };
      if (body || x.method !== 'GET') headers['Content-Length'] = String(body ? body.byteLength : 0);
      const request = this.#module.request({
        method: x.method,
        protocol: this.#base.protocol,
        hostname: this.#base.hostname.replace(/^\[|\]$/g, ''),
        port: this.#base.port,
        path: this.#base.pathname.replace(/\/$/, '') + x.path,
        headers,
        agent: this.#agent,
      });
      let over = false;
      let left: NodeJS.Timeout | undefined;
      const done = (error: Error | undefined, answer?: Answer): void => {
        if (over) return;
        over = true;
        clearTimeout(timer);
        if (left) clearTimeout(left);
        x.signal?.removeEventListener('abort', abort);
        x.leave?.removeEventListener('abort', leave);
        if (answer) return resolve(answer);
        request.destroy();
        reject(error);
      };
      const timer = setTimeout(() => done(new ConnectionError(`${of(x)}: no answer within ${x.timeout} ms`, 'timeout')), x.timeout);
      const abort = (): void => done(ended(x));
      const leave = (): void => {
        left = setTimeout(abort, leaving);
        const end = (socket: Socket): void => void socket.end();
        if (request.socket) end(request.socket);
        else abort(); // it has no connection yet, so the broker has nothing of it
      };
      x.signal?.addEventListener('abort', abort);
      x.leave?.addEventListener('abort', leave);
      request.on('error', (e: NodeJS.ErrnoException) => {
        done(x.leave?.aborted ? ended(x) : new ConnectionError(`${of(x)}: ${reason(e)}`, 'connection', 0, { cause: e }));
      });
      request.on('response', (response) => read(x, response, done));
      request.end(body);
    });
  }
}

function read(x: Exchange, response: http.IncomingMessage, done: (e: Error | undefined, a?: Answer) => void): void {
  const parts: Buffer[] = [];
  let size = 0;
  response.on('data', (part: Buffer) => {
    size += part.length;
    if (size > maxAnswer) return done(tooLarge(x));
    parts.push(part);
  });
  const broken = (): void => done(new ConnectionError(`${of(x)}: the answer broke off`, 'connection'));
  response.on('error', broken);
  response.on('close', () => (response.complete ? undefined : broken()));
  response.on('end', () => {
    if (!response.complete) return broken();
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(response.headers)) {
      if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(', ') : value;
    }
    done(undefined, { status: response.statusCode ?? 0, headers, body: Buffer.concat(parts) });
  });
}

/** FetchTransport carries requests by `fetch` or a function like it. */
export class FetchTransport implements Transport {
  readonly #open = new Set<AbortController>();

  constructor(readonly base: URL, readonly fetch: typeof globalThis.fetch) {}

  async send(x: Exchange): Promise<Answer> {
    const end = new AbortController();
    this.#open.add(end);
    const abort = (): void => end.abort();
    x.signal?.addEventListener('abort', abort);
    x.leave?.addEventListener('abort', abort);
    if (x.signal?.aborted || x.leave?.aborted) abort();
    let late = false;
    const timer = setTimeout(() => ((late = true), abort()), x.timeout);
    try {
      const url = this.base.origin + this.base.pathname.replace(/\/$/, '') + x.path;
      const init = { method: x.method, headers: x.headers, body: x.body || null, redirect: 'manual', signal: end.signal };
      const response = await this.fetch(url, init as RequestInit);
      const headers: Record<string, string> = {};
      response.headers.forEach((value, name) => (headers[name] = value));
      return { status: response.status, headers, body: await bounded(x, response) };
    } catch (e) {
      if (e instanceof ConnectionError) throw e;
      if (late) throw new ConnectionError(`${of(x)}: no answer within ${x.timeout} ms`, 'timeout');
      if (end.signal.aborted) throw ended(x);
      throw new ConnectionError(`${of(x)}: ${reason(e as NodeJS.ErrnoException)}`, 'connection', 0, { cause: e });
    } finally {
      clearTimeout(timer);
      x.signal?.removeEventListener('abort', abort);
      x.leave?.removeEventListener('abort', abort);
      this.#open.delete(end);
    }
  }

  close(): void {
    for (const end of this.#open) end.abort();
  }
}

async function bounded(x: Exchange, response: Response): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  if (!response.body) return new Uint8Array(await response.arrayBuffer());
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = (await reader.read()) as { done: boolean; value?: Uint8Array };
    if (done) return Buffer.concat(parts);
    size += value!.byteLength;
    if (size > maxAnswer) {
      await reader.cancel().catch(() => undefined);
      throw tooLarge(x);
    }
    parts.push(value!);
  }
}

function of(x: Exchange): string {
  return `${x.method} ${x.path.split('?')[0]}`;
}

function ended(x: Exchange): ConnectionError {
  return new ConnectionError(`${of(x)}: the client ended the request`, 'closed');
}

function tooLarge(x: Exchange): ConnectionError {
  return new ConnectionError(`${of(x)}: the answer has more than ${maxAnswer} bytes`, 'answer_too_large');
}

function reason(e: NodeJS.ErrnoException): string {
  const cause = (e.cause ?? e) as NodeJS.ErrnoException;
  return cause.code ? `${cause.code}: ${cause.message}` : e.message;
}
