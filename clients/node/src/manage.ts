import { ApiError } from './errors.js';
import type { Client } from './client.js';
import { object, segment } from './wire.js';

/** Fields of a form of the broker; see docs/resources.md. */
export type Fields = Record<string, string | number | boolean>;

/** Manage creates, changes and reads producers, channels and consumers. */
export class Manage {
  readonly #c: Client;

  constructor(c: Client) {
    this.#c = c;
  }

  putProducer(id: string, fields: Fields = {}): Promise<Record<string, unknown>> {
    return this.put(`/producer/${segment('producer', id)}`, fields);
  }

  putChannel(id: string, fields: Fields = {}): Promise<Record<string, unknown>> {
    return this.put(`/channel/${segment('channel', id)}`, fields);
  }

  putConsumer(channel: string, id: string, fields: Fields = {}): Promise<Record<string, unknown>> {
    return this.put(consumerPath(channel, id), fields);
  }

  consumer(channel: string, id: string): Promise<Record<string, unknown>> {
    return this.get(consumerPath(channel, id));
  }

  /** Holds the jobs of a consumer. */
  async pause(channel: string, consumer: string): Promise<void> {
    await this.post(`${consumerPath(channel, consumer)}/pause`, undefined, { channel, consumer });
  }

  async resume(channel: string, consumer: string): Promise<void> {
    await this.post(`${consumerPath(channel, consumer)}/resume`, undefined, { channel, consumer });
  }

  /** Ends all queued jobs; with `forget` they are in no DLQ. */
  async purge(channel: string, consumer: string, forget = false): Promise<number> {
    let purged = 0;
    for (;;) {
      const r = await this.post(`${consumerPath(channel, consumer)}/purge${forget ? '?forget=true' : ''}`, undefined, undefined, 30_000);
      purged += Number(r['Purged']) || 0;
      if (r['More'] !== true) return purged;
    }
  }

  /** Redrives dead letters; `select` as in docs/deadletters.md. */
  redrive(channel: string, consumer: string, select: object = {}): Promise<Record<string, unknown>> {
    return this.post(`${consumerPath(channel, consumer)}/dlq/redrive`, select, { channel, consumer });
  }

  /** A page of the dead letters of a consumer. */
  async deadLetters(channel: string, consumer: string, query = ''): Promise<Record<string, unknown>> {
    return this.get(`${consumerPath(channel, consumer)}/dlq${query}`, { channel, consumer });
  }

  /** A page of the jobs of a consumer that are neither delivered nor dead. */
  async jobs(channel: string, consumer: string, query = ''): Promise<Record<string, unknown>> {
    return this.get(`${consumerPath(channel, consumer)}/jobs${query}`, { channel, consumer });
  }

  /** Any resource or list, by its path. */
  async get(path: string, of?: { channel: string; consumer: string }): Promise<Record<string, unknown>> {
    return object({ method: 'GET', path }, (await this.#c.own({ method: 'GET', path }, of)).json);
  }

  async put(path: string, fields: Fields = {}): Promise<Record<string, unknown>> {
    const body = new URLSearchParams(Object.entries(fields).map(([k, v]): [string, string] => [k, String(v)])).toString();
    const headers: Record<string, string> = body ? { 'Content-Type': 'application/x-www-form-urlencoded' } : {};
    return object({ method: 'PUT', path }, (await this.#c.own({ method: 'PUT', path, body, headers })).json);
  }

  async post(path: string, json?: object, of?: { channel: string; consumer: string }, extra = 0): Promise<Record<string, unknown>> {
    const body = json ? JSON.stringify(json) : '';
    const headers: Record<string, string> = json ? { 'Content-Type': 'application/json' } : {};
    const r = await this.#c.own({ method: 'POST', path, body, headers }, of, extra);
    return (r.json ?? {}) as Record<string, unknown>;
  }

  /** False: there is nothing to delete. Needs BROKER_ALLOW_DELETE. */
  async delete(path: string): Promise<boolean> {
    try {
      await this.#c.own({ method: 'DELETE', path });
      return true;
    } catch (e) {
      if (e instanceof ApiError && e.status === 404) return false;
      throw e;
    }
  }
}

function consumerPath(channel: string, consumer: string): string {
  return `/channel/${segment('channel', channel)}/consumer/${segment('consumer', consumer)}`;
}
