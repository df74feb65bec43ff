import { ApiError, ConnectionError, PenstockError } from './errors.js';

/** Longest Retry-After that is heeded, ms. */
const longest = 3_600_000;

/** Full jitter: a random time up to min(30 s, 0.2 s * 2^n). */
export function backoff(n: number): number {
  return Math.random() * Math.min(30_000, 200 * 2 ** Math.min(n, 20));
}

/** Wait before try n + 1 after an error: the jitter, and not before Retry-After is over. */
export function pause(error: unknown, n: number): number {
  const after = error instanceof ApiError && error.retryAfter !== undefined ? error.retryAfter * 1000 : 0;
  return Math.min(after, longest) + backoff(n);
}

/** Reports whether the same request may succeed later. */
export function transient(error: unknown): boolean {
  if (error instanceof ConnectionError) return error.code !== 'closed';
  if (!(error instanceof ApiError)) return false;
  return error.status === 408 || error.status === 425 || error.status === 429 || error.status >= 500;
}

/** Seconds of a Retry-After: a number, also 5.0, 5s or in quotes, or a date. */
export function retryAfter(value: string | undefined, now = Date.now()): number | undefined {
  if (!value) return undefined;
  const text = value.trim().replace(/^"(.*)"$/, '$1');
  const number = /^(\d{1,9}(?:\.\d+)?)s?$/.exec(text);
  if (number) return Number(number[1]);
  const date = /^[A-Za-z]{3}/.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, (date - now) / 1000);
}

/** Waits, and ends early when the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, Math.min(ms, 2 ** 31 - 1));
    signal?.addEventListener('abort', end);
  });
}

export interface Tries {
  /** How often the request is sent at most. */
  tries: number;
  /** ms in which a next try may begin. */
  within: number;
  signal?: AbortSignal | undefined;
}

/** Runs a request again after an error that may pass, with waits between. */
export async function again<T>(o: Tries, request: (attempt: number) => Promise<T>): Promise<T> {
  const end = Date.now() + o.within;
  for (let n = 0; ; n++) {
    try {
      return await request(n);
    } catch (error) {
      if (!transient(error) || n + 1 >= o.tries || o.signal?.aborted) throw error;
      const wait = pause(error, n);
      if (Date.now() + wait > end) throw error;
      await sleep(wait, o.signal);
      if (o.signal?.aborted) throw new PenstockError('the client is closed', 'closed', 0, { cause: error });
    }
  }
}
