import { ApiError, ConfigError, ConnectionError, type PenstockError } from './errors.js';
import { retryAfter } from './backoff.js';
import type { Answer, Exchange, Transport } from './transport.js';

/** An answer whose body was read as JSON where it is JSON. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array;
  json: unknown;
}

/** Sends one request, and makes an error of every answer that is none of the expected. */
export async function ask(t: Transport, x: Exchange, expected: readonly number[] = [200, 201, 202, 204]): Promise<Reply> {
  const answer = await t.send(x);
  if (!expected.includes(answer.status)) throw problem(x, answer);
  return { ...answer, json: parsed(answer) };
}

/** The answer must be a JSON object. */
export function object(x: { method: string; path: string }, json: unknown): Record<string, unknown> {
  if (json !== null && typeof json === 'object' && !Array.isArray(json)) return json as Record<string, unknown>;
  throw new ConnectionError(`${x.method} ${x.path.split('?')[0]}: the answer is not the JSON of a broker`, 'bad_answer');
}

function parsed(answer: Answer): unknown {
  if (!/json/i.test(answer.headers['content-type'] ?? '') || answer.body.byteLength === 0) return undefined;
  try {
    return JSON.parse(text(answer.body));
  } catch {
    return undefined;
  }
}

export function text(body: Uint8Array): string {
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8');
}

/** Seconds of Retry-After. A date in it is compared with the clock of the same answer. */
export function waitOf(headers: Record<string, string>): number | undefined {
  const date = Date.parse(headers['date'] ?? '');
  return retryAfter(headers['retry-after'], Number.isNaN(date) ? Date.now() : date);
}

/** The error that an answer is: the broker's problem, or an answer that is none of a broker's. */
export function problem(x: Exchange, answer: Answer): PenstockError {
  const json = parsed(answer);
  const p = (json !== null && typeof json === 'object' ? json : {}) as Record<string, unknown>;
  if (typeof p['code'] !== 'string' && (answer.status < 408 || (answer.status > 429 && answer.status < 500))) {
    return new ConnectionError(`${x.method} ${x.path.split('?')[0]}: ${answer.status}, and not the answer of a broker`, 'bad_answer', answer.status);
  }
  const code = typeof p['code'] === 'string' ? p['code'] : `status_${answer.status}`;
  const detail = typeof p['detail'] === 'string' ? p['detail'] : '';
  const id = typeof p['request_id'] === 'string' ? p['request_id'] : (answer.headers['x-request-id'] ?? '');
  const what = `${x.method} ${x.path.split('?')[0]}`;
  return new ApiError(what, answer.status, code, detail, id, waitOf(answer.headers));
}

/** An ID as a part of a path. What no ID of the broker can be is an error before anything is sent. */
export function segment(kind: string, id: string): string {
  if (typeof id !== 'string' || !/^[A-Za-z0-9._~:@-]{1,255}$/.test(id) || id === '.' || id === '..') {
    throw new ConfigError(`${kind} ${JSON.stringify(id)} is no ID: 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -`);
  }
  return id;
}

/** The value of a header: nothing that could end its line. */
export function headerValue(name: string, value: string): string {
  if (/[\r\n\0]/.test(value)) throw new ConfigError(`${name} must be one line`);
  // Node writes Latin-1: bytes of UTF-8 go through as they are.
  return /[^\x20-\x7e\t]/.test(value) ? Buffer.from(value, 'utf8').toString('latin1') : value;
}
