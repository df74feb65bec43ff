import { again } from './backoff.js';
import { batches, type BatchResult } from './batch.js';
import { ApiError, ConfigError, ConnectionError, LeaseLost, PenstockError } from './errors.js';
import { LeasedJob, type JobPayload, type Said, type Update, type Updated } from './job.js';
import { Manage } from './manage.js';
import { bodyOf, duration, messageHeaders, newId, type Message, type Payload, type Published, type PublishOptions } from './message.js';
import { Resources } from './resources.js';
import { settings, type ClientOptions, type Settings } from './settings.js';
import { FetchTransport, HttpTransport, type Transport } from './transport.js';
import { ask, object, segment, text, waitOf, type Reply } from './wire.js';

/** What was answered to a request. */
export interface RequestAnswer {
  /** 200: `body` is the response. 202: there is none yet. */
  status: number;
  messageId: string;
  body: Uint8Array;
  text: string;
  contentType: string;
  /** Status of the answer that the consumer gave. */
  responseStatus: number;
  consumerId: string;
  location: string;
}

/** One entry of the responses to a message, in the names of the broker. */
export interface ResponseEntry {
  ConsumerID: string;
  State: string;
  Status: number;
  Headers: Record<string, string>;
  Body: string;
  BodyEncoding: string;
  Truncated: boolean;
  Reason: string;
  [member: string]: unknown;
}

export interface ClaimOptions {
  /** Consumer of the channel; default: the ID of the channel. */
  consumer?: string;
  /** Jobs at most, up to 500; default 1. */
  limit?: number;
  /** ms that the broker waits for the first job, up to 20 000; default 0. */
  wait?: number;
  /** Length of the leases, ms. */
  lease?: number;
  /** Value of `X-Broker-Worker`. */
  worker?: string;
  signal?: AbortSignal;
  /** Ends the claim without losing what it got: see Exchange.leave. */
  leave?: AbortSignal;
}

export interface Claim {
  jobs: LeasedJob[];
  /** Seconds; of an empty claim. */
  retryAfter: number | undefined;
  /** What keeps jobs from the worker: paused, limited or loading. */
  why: string;
  /** Jobs that are due and were left; undefined: not known. */
  backlog: number | undefined;
}

/** Which door of the broker a token is for. */
type Role = 'producer' | 'consumer';

/** Client speaks the HTTP API of one broker. */
export class Client {
  readonly settings: Readonly<Settings>;
  readonly transport: Transport;
  readonly resources: Resources;
  /** Producers, channels, consumers, dead letters. */
  readonly manage: Manage;
  readonly #end = new AbortController();

  constructor(o: ClientOptions = {}) {
    this.settings = settings(o);
    const s = this.settings;
    this.transport = o.transport ?? (o.fetch ? new FetchTransport(s.url, o.fetch) : new HttpTransport(s.url, s.maxConnections));
    this.resources = new Resources(this.transport, s);
    this.manage = new Manage(this);
  }

  /** ms since 1970: of this machine, or of the broker of a test. */
  now(): number {
    return this.transport.now?.() ?? Date.now();
  }

  /** Ends waits and connections. */
  async close(): Promise<void> {
    this.#end.abort();
    this.transport.close();
  }

  /** Publishes a message, once: a lost answer is asked again with the same message ID. */
  async publish(channel: string, payload: Payload, o: PublishOptions = {}): Promise<Published> {
    const id = o.messageId ?? newId();
    const body = bodyOf(payload);
    const headers = messageHeaders(id, body, o);
    const path = `/channel/${segment('channel', channel)}/broadcast`;
    return again(this.#tries(o), async () => {
      const r = await this.#asProducer(channel, { method: 'POST', path, headers, body: body.bytes }, [200, 201, 202, 409], o.signal);
      return published(id, r, `POST ${path}`);
    });
  }

  /**
   * Publishes many messages; the results are in their order, and one that fails fails no other.
   * `settled` is told of each result, by its place, as soon as it is final.
   */
  async publishMany(channel: string, messages: readonly Message[], settled?: (at: number, r: BatchResult) => void): Promise<BatchResult[]> {
    const path = `/channel/${segment('channel', channel)}/batch`;
    const named = messages.map((m) => ({ ...m, messageId: m.messageId ?? newId() }));
    return batches(named, {
      tries: this.settings.tries,
      signal: this.#end.signal,
      settled,
      send: async (lines) => {
        const headers = { 'Content-Type': 'application/x-ndjson' };
        const r = await this.#asProducer(channel, { method: 'POST', path, headers, body: lines }, [200]);
        return text(r.body);
      },
    });
  }

  /** Publishes a job for the workers of a queue, which is made if it is not there. */
  async enqueue(queue: string, job: Partial<JobPayload> & { task: string }, o: PublishOptions = {}): Promise<Published> {
    await this.makeQueue(queue);
    const payload = { task: job.task, args: job.args ?? [], kwargs: job.kwargs ?? {}, meta: job.meta ?? {} };
    return this.publish(queue, payload, { task: job.task, ...o });
  }

  /** Makes what the jobs of a queue need: producer, channel and consumer. */
  async makeQueue(queue: string): Promise<void> {
    await this.resources.producer();
    await this.resources.consumer(queue, queue);
  }

  /** Publishes a message that is sent later, or again and again: `delay`, `scheduledFor` or `recurrence`. */
  async schedule(channel: string, payload: Payload, o: PublishOptions): Promise<Published> {
    if (o.delay === undefined && o.scheduledFor === undefined && o.recurrence === undefined) {
      throw new ConfigError('schedule needs delay, scheduledFor or recurrence');
    }
    return this.publish(channel, payload, o);
  }

  /** A scheduled message, or undefined. */
  async scheduled(channel: string, id: string): Promise<Record<string, unknown> | undefined> {
    return this.#maybe(async () => object({ method: 'GET', path: '' }, (await this.#published(channel, 'GET', schedulePath(channel, id))).json));
  }

  /** Changes a scheduled message; what is left out stays. */
  async reschedule(channel: string, id: string, o: PublishOptions & { payload?: Payload }): Promise<Record<string, unknown>> {
    const { payload, ...rest } = o;
    const body = payload === undefined ? undefined : bodyOf(payload);
    const headers = messageHeaders(id, body ?? { bytes: '', type: '' }, rest);
    delete headers['X-Broker-Message-ID'];
    if (!body) delete headers['Content-Type'];
    const r = await this.#published(channel, 'PUT', schedulePath(channel, id), body?.bytes, headers);
    return object({ method: 'PUT', path: '' }, r.json);
  }

  /** Deletes a scheduled message before its time. False: there is none, or its time has come. */
  async unschedule(channel: string, id: string): Promise<boolean> {
    try {
      await this.#published(channel, 'DELETE', schedulePath(channel, id));
      return true;
    } catch (e) {
      if (e instanceof ApiError && (e.status === 404 || e.code === 'already_dispatched')) return false;
      throw e;
    }
  }

  /** Publishes and waits for the first response. */
  async request(channel: string, payload: Payload, o: PublishOptions & { wait?: number } = {}): Promise<RequestAnswer> {
    const { wait = 10_000, ...rest } = o;
    const seconds = Math.min(60, Math.max(0, Math.ceil(wait / 1000)));
    const id = rest.messageId ?? newId();
    const body = bodyOf(payload);
    const headers = { ...messageHeaders(id, body, rest), Prefer: `wait=${seconds}` };
    const x = { method: 'POST', path: `/channel/${segment('channel', channel)}/request`, headers, body: body.bytes, waits: true };
    const extra = seconds * 1000;
    return again({ ...this.#tries(rest), within: (rest.within ?? 30_000) + extra }, async () => {
      let r: Reply;
      try {
        r = await this.#asProducer(channel, x, [200, 202, 409], rest.signal, extra);
      } catch (e) {
        throw final(e);
      }
      if (r.status !== 409) return answerOf(id, r);
      const p = published(id, r, `POST ${x.path}`); // stored by an earlier try: its response is awaited
      return this.#awaited(channel, p, seconds);
    });
  }

  async #awaited(channel: string, p: Published, seconds: number): Promise<RequestAnswer> {
    const entries = await this.responses(channel, p.messageId, { wait: seconds * 1000, until: 'first' });
    const e = entries.find((one) => one.State.startsWith('RESPONSE_'));
    const bytes = Buffer.from(e?.Body ?? '', e?.BodyEncoding === 'base64' ? 'base64' : 'utf8');
    const failed = entries.length > 0 && entries.every((one) => one.State === 'FAILED');
    if (failed) throw new PenstockError(`the request failed: ${entries.map((one) => `${one.ConsumerID}: ${one.Reason}`).join('; ')}`, 'response_failed', 502);
    return {
      status: e ? 200 : 202, messageId: p.messageId, body: bytes, text: bytes.toString('utf8'),
      contentType: e?.Headers['Content-Type'] ?? '', responseStatus: e?.Status ?? 0, consumerId: e?.ConsumerID ?? '',
      location: p.location,
    };
  }

  /** The responses of the consumers to a message. */
  async responses(channel: string, message: string, o: { wait?: number; until?: 'first' | 'all' | `quorum:${number}`; signal?: AbortSignal } = {}): Promise<ResponseEntry[]> {
    const wait = Math.min(60_000, o.wait ?? 0);
    const query = wait > 0 ? `?wait=${duration('wait', wait)}&until=${o.until ?? 'all'}` : '';
    const path = `/channel/${segment('channel', channel)}/message/${segment('message', message)}/responses${query}`;
    const r = await this.#published(channel, 'GET', path, undefined, {}, wait, o.signal);
    const list = object({ method: 'GET', path }, r.json)['Result'];
    return Array.isArray(list) ? (list as ResponseEntry[]) : [];
  }

  /** Posts the response of a consumer to a message. */
  async respond(channel: string, message: string, payload: Payload, o: { consumer?: string; contentType?: string } = {}): Promise<void> {
    const consumer = o.consumer ?? channel;
    const body = bodyOf(payload);
    const path = `/channel/${segment('channel', channel)}/message/${segment('message', message)}/response`;
    const headers = { 'Content-Type': o.contentType ?? body.type, 'X-Broker-Consumer-ID': segment('consumer', consumer) };
    await again(this.#tries({}), async (n) => {
      try {
        await this.asConsumer(channel, consumer, { method: 'POST', path, headers, body: body.bytes }, [202]);
      } catch (e) {
        if (n > 0 && e instanceof ApiError && e.code === 'response_exists') return; // an earlier try
        throw e;
      }
    });
  }

  /** Leases due jobs. It is asked once: a worker repeats it in its loop. */
  async claim(channel: string, o: ClaimOptions = {}): Promise<Claim> {
    const consumer = o.consumer ?? channel;
    const wait = Math.min(20_000, Math.max(0, o.wait ?? 0));
    const lease = Math.ceil((o.lease ?? this.settings.lease) / 1000);
    const query = `limit=${Math.min(500, o.limit ?? 1)}${wait > 0 ? `&wait=${duration('wait', wait)}` : ''}&timeout=${lease}`;
    const path = `/channel/${segment('channel', channel)}/consumer/${segment('consumer', consumer)}/claim?${query}`;
    const headers = { 'X-Broker-Worker': o.worker ?? this.settings.worker };
    const x = { method: 'POST', path, headers, waits: wait > 0, leave: o.leave };
    const r = await this.asConsumer(channel, consumer, x, [200], o.signal, wait);
    const json = object(x, r.json);
    if (!Array.isArray(json['Result'])) throw new ConnectionError('the answer to a claim has no Result', 'bad_answer');
    const jobs: LeasedJob[] = [];
    for (const entry of json['Result'] as unknown[]) {
      const j = entry as Record<string, unknown> | null;
      if (j && typeof j === 'object' && typeof j['ID'] === 'string' && typeof j['Lease'] === 'string' && j['Message']) {
        jobs.push(new LeasedJob(this, channel, consumer, j));
      }
    }
    return { jobs, retryAfter: waitOf(r.headers), why: typeof json['Why'] === 'string' ? json['Why'] : '', backlog: countOf(r.headers['x-broker-backlog']) };
  }

  /** Moves up to 500 jobs at once; each has its own answer. It is asked once. */
  async update(channel: string, consumer: string, updates: readonly Update[], o: { worker?: string; signal?: AbortSignal } = {}): Promise<Updated[]> {
    const path = `/channel/${segment('channel', channel)}/consumer/${segment('consumer', consumer)}/jobs`;
    const headers = { 'Content-Type': 'application/json', 'X-Broker-Worker': o.worker ?? this.settings.worker };
    const x = { method: 'POST', path, headers, body: JSON.stringify({ Updates: updates }) };
    const r = await this.asConsumer(channel, consumer, x, [200], o.signal);
    const list = object(x, r.json)['Result'];
    if (!Array.isArray(list)) throw new ConnectionError(`POST ${path}: the answer has no Result`, 'bad_answer');
    return list as Updated[];
  }

  ack(job: LeasedJob): Promise<void> {
    return this.#move(job, { ID: job.id, Lease: job.lease, NextState: 'DELIVERED' });
  }

  nack(job: LeasedJob, o: Said & { delay?: number; failed?: boolean } = {}): Promise<void> {
    return this.#move(job, {
      ID: job.id, Lease: job.lease, NextState: 'QUEUED', ...(o.delay ? { Delay: Math.ceil(o.delay / 1000) } : {}),
      ...(o.failed ? { Failed: true } : {}), ...said(o),
    });
  }

  reject(job: LeasedJob, o: Said = {}): Promise<void> {
    return this.#move(job, { ID: job.id, Lease: job.lease, NextState: 'DEAD', ...said(o) });
  }

  extend(job: LeasedJob, ms = this.settings.lease): Promise<void> {
    return this.#move(job, { ID: job.id, Lease: job.lease, NextState: 'INFLIGHT', Timeout: Math.ceil(ms / 1000) });
  }

  async #move(job: LeasedJob, u: Update): Promise<void> {
    await again(this.#tries({}), async (n) => {
      const [r] = await this.update(job.channel, job.consumer, [u]);
      if (!r || typeof r.Status !== 'number') throw new ConnectionError('the answer to a move has no entry', 'bad_answer');
      if (r.Status < 300) return;
      // A move to QUEUED whose answer was lost has ended the lease.
      if (r.code === 'lease_lost' && n > 0 && u.NextState === 'QUEUED') return;
      if (r.code === 'lease_lost') throw new LeaseLost();
      throw new ApiError(`job ${job.id}`, r.Status, r.code ?? 'unknown', '');
    });
  }

  /** Publishes the rows of a body of NDJSON or CSV, of any length up to the broker's bound. */
  async bulk(channel: string, body: string | Uint8Array, o: { contentType: string; rate?: string; template?: object }): Promise<{ location: string; id: string }> {
    const path = `/channel/${segment('channel', channel)}/bulk`;
    const headers: Record<string, string> = { 'Content-Type': o.contentType };
    if (o.rate) headers['X-Broker-Bulk-Rate'] = o.rate;
    if (o.template) headers['X-Broker-Bulk-Template'] = Buffer.from(JSON.stringify(o.template), 'utf8').toString('latin1');
    // Not repeated after a lost answer: a second bulk stores its rows again unless they have IDs.
    const r = await this.#asProducer(channel, { method: 'POST', path, headers, body }, [202], undefined, 60_000);
    const location = r.headers['location'] ?? '';
    return { location, id: location.split('/').pop() ?? '' };
  }

  /** A bulk and how far it is. */
  async bulkStatus(channel: string, id: string): Promise<Record<string, unknown>> {
    const path = `/channel/${segment('channel', channel)}/bulk/${segment('bulk', id)}`;
    return object({ method: 'GET', path }, (await this.#published(channel, 'GET', path)).json);
  }

  /** A message with its jobs, or undefined. */
  async message(channel: string, id: string): Promise<Record<string, unknown> | undefined> {
    const path = `/channel/${segment('channel', channel)}/message/${segment('message', id)}`;
    return this.#maybe(async () => object({ method: 'GET', path }, (await this.#published(channel, 'GET', path)).json));
  }

  /** One request with the tokens of a consumer. A token that was changed is read anew, once. */
  asConsumer(channel: string, consumer: string, x: Partial<Sent> & { method: string; path: string }, expected: number[], signal?: AbortSignal, extra = 0): Promise<Reply> {
    return this.#as('consumer', channel, consumer, x, expected, signal, extra);
  }

  #asProducer(channel: string, x: Partial<Sent> & { method: string; path: string }, expected: number[], signal?: AbortSignal, extra = 0): Promise<Reply> {
    return this.#as('producer', channel, '', x, expected, signal, extra);
  }

  /** Requests that management, or the producer of the message, may make. */
  async #published(channel: string, method: string, path: string, body?: string | Uint8Array, headers: Record<string, string> = {}, extra = 0, signal?: AbortSignal): Promise<Reply> {
    const x = { method, path, headers, body, waits: extra > 0 };
    const once = (): Promise<Reply> => this.#asProducer(channel, x, [200, 202, 204], signal, extra);
    return method === 'GET' || method === 'DELETE' || method === 'PUT' ? again({ ...this.#tries({}), within: 30_000 + extra }, once) : once();
  }

  async #as(role: Role, channel: string, consumer: string, x: Partial<Sent> & { method: string; path: string }, expected: number[], signal: AbortSignal | undefined, extra: number): Promise<Reply> {
    for (let n = 0; ; n++) {
      const own = role === 'consumer' ? await this.resources.consumer(channel, consumer) : await this.resources.producer();
      const tokens: Record<string, string> = { 'X-Broker-Channel-Token': await this.resources.channel(channel) };
      if (role === 'consumer') tokens['X-Broker-Consumer-Token'] = own;
      else Object.assign(tokens, { 'X-Broker-Producer-ID': this.settings.producerId, 'X-Broker-Producer-Token': own });
      try {
        return await ask(this.transport, { ...x, headers: { ...x.headers, ...tokens }, timeout: this.settings.timeout + extra, signal: signal ?? this.#end.signal }, expected);
      } catch (e) {
        if (n > 0 || !this.resources.stale(e)) throw e;
      }
    }
  }

  /** One request of management, or of the owner of a consumer. */
  async own(x: { method: string; path: string; body?: string; headers?: Record<string, string> }, of?: { channel: string; consumer: string }, extra = 0): Promise<Reply> {
    const s = this.settings;
    const headers = { ...x.headers, ...this.resources.management() };
    // Tokens that were given open the routes of an owner where management is closed.
    if (of && !s.adminToken && s.consumerToken) {
      headers['X-Broker-Channel-Token'] = await this.resources.channel(of.channel);
      headers['X-Broker-Consumer-Token'] = await this.resources.consumer(of.channel, of.consumer);
    }
    const once = (): Promise<Reply> => ask(this.transport, { ...x, headers, timeout: s.timeout + extra, signal: this.#end.signal }, [200, 201, 202, 204]);
    return x.method === 'POST' ? once() : again(this.#tries({}), once);
  }

  async #maybe<T>(f: () => Promise<T>): Promise<T | undefined> {
    try {
      return await f();
    } catch (e) {
      if (e instanceof ApiError && e.status === 404) return undefined;
      throw e;
    }
  }

  #tries(o: { within?: number | undefined; signal?: AbortSignal | undefined }): { tries: number; within: number; signal: AbortSignal } {
    return { tries: this.settings.tries, within: o.within ?? 30_000, signal: o.signal ?? this.#end.signal };
  }
}

interface Sent {
  headers: Record<string, string>;
  body: string | Uint8Array | undefined;
  waits: boolean;
  leave: AbortSignal | undefined;
}

function countOf(text: string | undefined): number | undefined {
  return text && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

function schedulePath(channel: string, id: string): string {
  return `/channel/${segment('channel', channel)}/scheduled-message/${segment('scheduled message', id)}`;
}

/** What an answer to a publish says. 409 is a success where the same message is stored. */
function published(id: string, r: Reply, what: string): Published {
  const json = (r.json ?? {}) as Record<string, unknown>;
  if (r.status === 409 && json['code'] !== 'duplicate_message_id') {
    const code = typeof json['code'] === 'string' ? json['code'] : 'status_409';
    throw new ApiError(what, 409, code, typeof json['detail'] === 'string' ? json['detail'] : '', String(json['request_id'] ?? ''));
  }
  const location = r.headers['location'] ?? '';
  if (!location) throw new ConnectionError(`${what}: the answer has no Location`, 'bad_answer');
  return { messageId: id, location, status: r.status, duplicate: r.status === 409 || r.status === 200 };
}

function answerOf(id: string, r: Reply): RequestAnswer {
  return {
    status: r.status, messageId: id, body: r.body, text: text(r.body), contentType: r.headers['content-type'] ?? '',
    responseStatus: Number(r.headers['x-broker-response-status']) || 0, consumerId: r.headers['x-broker-consumer-id'] ?? '',
    location: r.headers['location'] ?? '',
  };
}

/** The failure of an exchange is an answer, not a fault that passes. */
function final(e: unknown): unknown {
  if (e instanceof ApiError && (e.code === 'response_failed' || e.code === 'response_late')) {
    return new PenstockError(e.message, e.code, e.status, { cause: e });
  }
  return e;
}

export function said(o: Said): { Reason?: string; Detail?: string } {
  return { ...(o.reason ? { Reason: o.reason.slice(0, 255) } : {}), ...(o.detail ? { Detail: o.detail.slice(0, 1024) } : {}) };
}

