import { randomUUID } from 'node:crypto';
import { ConfigError } from './errors.js';
import { refuseUnknown } from './settings.js';
import { headerValue, segment } from './wire.js';

/** What a producer says of a message. Times are ms, or the broker's texts such as "1h30m". */
export interface PublishOptions {
  /** The message's ID, unique in the channel. Without one the client makes one, so a lost answer is asked again safely. */
  messageId?: string;
  contentType?: string;
  contentEncoding?: string;
  /** 0 (default) to 1023, higher first. */
  priority?: number;
  /** Metadata headers. */
  headers?: Record<string, string>;
  /** IDs of the consumers that the message is for; default: all. */
  consumers?: string[];
  ttl?: number | string;
  /** Kind of the job, `X-Broker-Task`. */
  task?: string;
  orderingKey?: string;
  delay?: number | string;
  scheduledFor?: Date | string;
  /** `R5/2026-12-01T00:00:00Z/PT1H` or `cron:30 9 * * 1-5`. */
  recurrence?: string;
  /** ms in which the publish has to succeed; default 30 000. */
  within?: number;
  signal?: AbortSignal;
}

/** A message of a batch. */
export interface Message extends Omit<PublishOptions, 'within' | 'signal'> {
  payload: unknown;
}

/** A payload: bytes, text, or a value that becomes JSON. */
export type Payload = unknown;

/** A message that the broker has. */
export interface Published {
  messageId: string;
  /** Link to the message, the schedule or the receipt. */
  location: string;
  /** 201 stored, 202 in the journal of the broker, 200 or 409: it was stored before. */
  status: number;
  /** It was stored before. */
  duplicate: boolean;
}

const options = new Set<string>([
  'messageId', 'contentType', 'contentEncoding', 'priority', 'headers', 'consumers', 'ttl', 'task', 'orderingKey', 'delay',
  'scheduledFor', 'recurrence', 'within', 'signal',
]);
const members = new Set<string>([...options, 'payload']);
for (const name of ['within', 'signal']) members.delete(name); // they are of a request, not of a line

/** Headers that say how the request is read, or who sends it: as metadata they would change the request. */
const reserved = /^(x-broker-.*|x-request-id|user-agent|content-(type|length|encoding|range)|transfer-encoding|host|connection|keep-alive|proxy(-.*)?|upgrade|http2-settings|te|trailer|expect|authorization|cookie)$/;

/** A body with its content type. */
export interface Body {
  bytes: string | Uint8Array;
  type: string;
}

export function bodyOf(payload: Payload): Body {
  if (typeof payload === 'string') return { bytes: payload, type: 'text/plain; charset=utf-8' };
  if (payload instanceof Uint8Array) return { bytes: payload, type: 'application/octet-stream' };
  if (payload instanceof ArrayBuffer) return { bytes: new Uint8Array(payload), type: 'application/octet-stream' };
  const json = JSON.stringify(payload) as string | undefined;
  if (json === undefined) throw new ConfigError(`a payload of type ${typeof payload} has no JSON`);
  return { bytes: json, type: 'application/json' };
}

/** A new ID, for a message whose sender gave none. */
export function newId(): string {
  return randomUUID();
}

/** The headers of a broadcast or a request. */
export function messageHeaders(id: string, body: Body, o: PublishOptions): Record<string, string> {
  refuseUnknown('publish', o, options);
  const h: Record<string, string> = {
    'Content-Type': headerValue('contentType', o.contentType ?? body.type),
    'X-Broker-Message-ID': segment('message', id),
  };
  const set = (name: string, value: string | undefined): void => {
    if (value !== undefined) h[name] = headerValue(name, value);
  };
  set('Content-Encoding', o.contentEncoding);
  set('X-Broker-Message-Priority', o.priority === undefined ? undefined : String(o.priority));
  set('X-Broker-Consumers', o.consumers?.join(','));
  set('X-Broker-Message-TTL', duration('ttl', o.ttl));
  set('X-Broker-Task', o.task);
  set('X-Broker-Ordering-Key', o.orderingKey);
  set('X-Broker-Delay', duration('delay', o.delay));
  set('X-Broker-Scheduled-For', time(o.scheduledFor));
  set('X-Broker-Recurrence', o.recurrence);
  const names = Object.keys(o.headers ?? {});
  if (names.length > 0) set('X-Broker-Metadata-Headers', names.join(','));
  for (const name of names) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) throw new ConfigError(`${JSON.stringify(name)} is no name of a header`);
    if (reserved.test(name.toLowerCase())) throw new ConfigError(`${JSON.stringify(name)} is no metadata: the name is reserved (docs/headers.md)`);
    set(name, o.headers![name]);
  }
  return h;
}

/** The line of a batch. */
export function line(m: Message & { messageId: string }): string {
  refuseUnknown('a message of publishMany', m, members);
  const body = bodyOf(m.payload);
  const bytes = typeof body.bytes === 'string' ? undefined : Buffer.from(body.bytes);
  return JSON.stringify({
    MessageID: segment('message', m.messageId),
    Priority: m.priority,
    TTL: duration('ttl', m.ttl),
    ContentType: m.contentType ?? body.type,
    ContentEncoding: m.contentEncoding,
    OrderingKey: m.orderingKey,
    Task: m.task,
    Consumers: m.consumers,
    Delay: duration('delay', m.delay),
    ScheduledFor: time(m.scheduledFor),
    Recurrence: m.recurrence,
    Headers: m.headers,
    Payload: bytes ? undefined : body.bytes,
    PayloadBase64: bytes?.toString('base64'),
  });
}

/** A duration as the broker reads it; numbers are ms. */
export function duration(name: string, value: number | string | undefined): string | undefined {
  if (value === undefined || typeof value === 'string') return value;
  if (!Number.isFinite(value) || value < 0) throw new ConfigError(`${name} must be a number of ms from 0`);
  const ms = Math.ceil(value);
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

function time(value: Date | string | undefined): string | undefined {
  return value instanceof Date ? value.toISOString() : value;
}
