import type { BatchResult } from '../batch.js';
import type { Client } from '../client.js';
import { ConnectionError } from '../errors.js';
import type { Message, Published } from '../message.js';

/** A request has at most so many jobs and characters; a larger job goes alone. */
const mostJobs = 500;
const mostChars = 256 << 10;

/** Requests under way at once: one that hangs holds up no other. */
const mostRequests = 4;

/** A job that has no turn within so many ms is not added. */
const patience = 30_000;

/** A job whose payload is JSON already. */
export type Adding = Message & { messageId: string; payload: string };

interface Waiting {
  job: Adding;
  since: number;
  added(p: Published): void;
  failed(e: Error): void;
}

/**
 * Adder joins the jobs that are added in one turn of the event loop, or while four requests are under
 * way, into one batch request. Each has its own ID, its own answer as soon as the broker has given it,
 * and its own error. A job that is alone is a broadcast, and leaves in the same turn.
 */
export class Adder {
  readonly #client: Client;
  readonly #channel: string;
  #waiting: Waiting[] = [];
  #requests = 0;
  #planned = false;

  constructor(client: Client, channel: string) {
    [this.#client, this.#channel] = [client, channel];
  }

  add(job: Adding): Promise<Published> {
    return new Promise((added, failed) => {
      this.#waiting.push({ job, since: performance.now(), added, failed });
      if (this.#planned) return;
      this.#planned = true;
      setImmediate(() => {
        this.#planned = false;
        this.#send();
      });
    });
  }

  #send(): void {
    while (this.#requests < mostRequests && this.#waiting.length > 0) {
      let [n, chars] = [0, 0];
      for (; n < this.#waiting.length && n < mostJobs; n++) {
        chars += this.#waiting[n]!.job.payload.length;
        if (n > 0 && chars > mostChars) break;
      }
      const part = this.#waiting.splice(0, n).filter((w) => !late(w));
      if (part.length === 0) continue;
      this.#requests++;
      const sent = part.length === 1 ? this.#one(part[0]!) : this.#many(part);
      void sent.finally(() => {
        this.#requests--;
        this.#send();
      });
    }
  }

  async #one(w: Waiting): Promise<void> {
    const { payload, ...options } = w.job;
    await this.#client.publish(this.#channel, payload, options).then(w.added, w.failed);
  }

  async #many(part: Waiting[]): Promise<void> {
    const settled = (at: number, r: BatchResult): void => (r.error ? part[at]!.failed(r.error) : part[at]!.added(r));
    try {
      await this.#client.publishMany(this.#channel, part.map((w) => w.job), settled);
    } catch (e) {
      for (const w of part) w.failed(e as Error); // of those that are settled it changes nothing
    }
  }
}

function late(w: Waiting): boolean {
  if (performance.now() - w.since <= patience) return false;
  w.failed(new ConnectionError(`job ${w.job.messageId} is not added: the broker did not answer others for ${patience} ms`, 'timeout'));
  return true;
}
