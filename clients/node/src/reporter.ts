import { pause, sleep, transient } from './backoff.js';
import type { Client } from './client.js';
import { ConnectionError } from './errors.js';
import type { Update, Updated } from './job.js';
import { silence } from './response.js';

/** A report is full at so many moves or bytes, and leaves after so many ms. */
const mostUpdates = 500;
const mostBytes = 200 << 10;
const linger = 5;

/** Reports under way at once: one that hangs holds up no other. */
const mostReports = 4;

/** What became of a move: the broker took it, the lease was lost, or it cannot be. */
export type Outcome = { ok: true } | { ok: false; code: string };

interface Waiting {
  update: Update;
  bytes: number;
  done(o: Outcome): void;
}

/** Reporter sends what became of jobs in batches, until the broker has taken it. */
export class Reporter {
  readonly #client: Client;
  readonly #channel: string;
  readonly #consumer: string;
  readonly #worker: string;
  readonly #onError: (e: Error) => void;
  #waiting: Waiting[] = [];
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #reports = 0;
  #open = 0;
  #failing = 0;
  readonly #end = new AbortController();

  constructor(client: Client, channel: string, consumer: string, worker: string, onError: (e: Error) => void) {
    [this.#client, this.#channel, this.#consumer, this.#worker, this.#onError] = [client, channel, consumer, worker, onError];
  }

  /** Moves that the broker has not taken yet. */
  get open(): number {
    return this.#open;
  }

  /** The broker does not take reports: until it does, a worker claims nothing. */
  get stuck(): boolean {
    return this.#failing > 0;
  }

  /** Resolves when the broker has answered the move; until then it is sent again and again. */
  add(update: Update): Promise<Outcome> {
    this.#open++;
    return new Promise((resolve) => {
      const done = (o: Outcome): void => {
        this.#open--;
        resolve(o);
      };
      this.#push({ update, bytes: JSON.stringify(update).length + 1, done });
    });
  }

  /** Gives up what the broker does not take. */
  abandon(): void {
    this.#end.abort();
    const rest = this.#waiting;
    [this.#waiting, this.#bytes] = [[], 0];
    for (const w of rest) w.done({ ok: false, code: 'abandoned' });
  }

  #push(w: Waiting): void {
    if (this.#end.signal.aborted) return w.done({ ok: false, code: 'abandoned' });
    this.#waiting.push(w);
    this.#bytes += w.bytes;
    if (this.#waiting.length >= mostUpdates || this.#bytes >= mostBytes) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), linger);
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#reports < mostReports && this.#waiting.length > 0) {
      let bytes = 0;
      let n = 0;
      const seen = new Set<string>();
      for (; n < this.#waiting.length && n < mostUpdates; n++) {
        const w = this.#waiting[n]!;
        if (n > 0 && (bytes + w.bytes > mostBytes || seen.has(w.update.ID))) break; // a request names each job once
        seen.add(w.update.ID);
        bytes += w.bytes;
      }
      const batch = this.#waiting.splice(0, n);
      this.#bytes -= bytes;
      this.#reports++;
      void this.#report(batch).finally(() => {
        this.#reports--;
        if (this.#waiting.length > 0) this.#flush();
      });
    }
  }

  async #report(batch: Waiting[]): Promise<void> {
    const signal = this.#end.signal;
    for (let n = 0; batch.length > 0; n++) {
      if (n === 1) this.#failing++;
      let error: unknown;
      try {
        const answers = await this.#client.update(this.#channel, this.#consumer, batch.map((w) => w.update), { worker: this.#worker, signal });
        batch = batch.filter((w, i) => !this.#settle(w, answers[i]));
        if (batch.length === 0) {
          if (n > 0) this.#failing--;
          return;
        }
        error = new ConnectionError('the broker did not take all moves of a report', 'bad_answer');
      } catch (e) {
        error = e;
      }
      if (signal.aborted) break;
      if (!transient(error)) this.#onError(error as Error); // it is tried again: a lease that ends ends it, too
      await sleep(pause(error, n), signal);
      if (signal.aborted) break;
    }
    for (const w of batch) w.done({ ok: false, code: 'abandoned' });
  }

  /** Reports whether the broker's answer ends the move. */
  #settle(w: Waiting, r: Updated | undefined): boolean {
    if (!r || r.ID !== w.update.ID || typeof r.Status !== 'number') return false;
    if (r.code === 'invalid_response' && w.update.Response !== undefined) {
      // The consumer keeps no responses; the job is done all the same.
      silence(this.#client, this.#channel, this.#consumer);
      const { Response: _, ResponseType: __, ...rest } = w.update;
      w.update = rest;
      return false;
    }
    if (r.Status < 300) w.done({ ok: true });
    else if (r.Status >= 500 || r.Status === 429 || r.Status === 408) return false;
    else w.done({ ok: false, code: r.code ?? `status_${r.Status}` });
    return true;
  }
}
