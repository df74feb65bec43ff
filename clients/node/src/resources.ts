import { again } from './backoff.js';
import { ApiError, PenstockError } from './errors.js';
import type { Settings } from './settings.js';
import type { Transport } from './transport.js';
import { ask, object, segment } from './wire.js';

type Kind = 'producer' | 'channel' | 'consumer';

/** Answers that say that a token, or a resource, is not what this client has read. */
const stale = new Set([
  'producer_not_found', 'consumer_not_found', 'channel_not_found', 'channel_token_mismatch', 'producer_token_mismatch',
  'consumer_token_mismatch',
]);

const closed = new Set(['token_missing', 'admin_disabled', 'admin_token_mismatch', 'host_not_allowed']);

/**
 * Resources makes producers, channels and consumers where the broker lets it, and knows their tokens.
 * A token that was given is used as it is, and then its resource is neither made nor read.
 */
export class Resources {
  readonly #t: Transport;
  readonly #s: Settings;
  readonly #known = new Map<string, Promise<string>>();

  constructor(t: Transport, s: Settings) {
    this.#t = t;
    this.#s = s;
  }

  producer(): Promise<string> {
    if (this.#s.producerToken) return Promise.resolve(this.#s.producerToken);
    return this.#of('producer', `/producer/${segment('producer', this.#s.producerId)}`);
  }

  channel(channel: string): Promise<string> {
    if (this.#s.channelToken) return Promise.resolve(this.#s.channelToken);
    return this.#of('channel', `/channel/${segment('channel', channel)}`, channel);
  }

  /** Makes the channel too: a consumer needs one. */
  async consumer(channel: string, consumer: string): Promise<string> {
    const path = `/channel/${segment('channel', channel)}/consumer/${segment('consumer', consumer)}`;
    if (this.#s.consumerToken) return this.#s.consumerToken;
    await this.channel(channel);
    return this.#of('consumer', path, channel);
  }

  /**
   * Forgets what was read, if the error says that it does not hold any more. It reports whether a
   * second try may then succeed.
   */
  stale(error: unknown): boolean {
    if (!(error instanceof ApiError) || !stale.has(error.code)) return false;
    const had = this.#known.size > 0;
    this.#known.clear();
    return had;
  }

  #of(kind: Kind, path: string, queue?: string): Promise<string> {
    let token = this.#known.get(path);
    if (!token) {
      token = this.#make(kind, path).catch((error: unknown) => {
        this.#known.delete(path);
        throw this.#closed(error, queue);
      });
      this.#known.set(path, token);
    }
    return token;
  }

  async #make(kind: Kind, path: string): Promise<string> {
    for (let n = 0; n < 3; n++) {
      const json = await again({ tries: this.#s.tries, within: 30_000 }, async () =>
        kind === 'consumer' ? await this.#consumer(path) : await this.#put(path, {}, ''),
      );
      if (!json) continue; // deleted between the two requests
      if (kind === 'consumer' && json['Type'] !== 'pull') {
        const [, , channel, , consumer] = path.split('/');
        throw new PenstockError(
          `queue "${channel}": consumer ${consumer} of channel ${channel} is a push consumer; a worker needs a pull consumer`,
          'consumer_not_pull', 412);
      }
      if (typeof json['Token'] !== 'string') throw new PenstockError(`PUT ${path}: the answer has no token`, 'bad_answer');
      if (json['Token'] !== '') return json['Token'];
      throw new PenstockError(
        `the broker at ${this.#s.url.origin} does not show the token of ${kind} ${path}, which was there before ` +
          '(BROKER_SHOW_TOKENS): set the tokens PENSTOCK_CHANNEL_TOKEN and PENSTOCK_CONSUMER_TOKEN ' +
          '(a producer: PENSTOCK_PRODUCER_ID, PENSTOCK_PRODUCER_TOKEN)',
        'token_not_shown', 200);
    }
    throw new PenstockError(`PUT ${path}: the resource is deleted again and again`, 'not_found', 404);
  }

  async #consumer(path: string): Promise<Record<string, unknown> | undefined> {
    const headers = { 'If-None-Match': '*', 'Content-Type': 'application/x-www-form-urlencoded' };
    try {
      return await this.#put(path, headers, 'type=pull');
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 412) throw error;
    }
    const x = { method: 'GET', path, headers: this.management(), timeout: this.#s.timeout };
    try {
      return object(x, (await ask(this.#t, x, [200])).json);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return undefined;
      throw error;
    }
  }

  async #put(path: string, headers: Record<string, string>, body: string): Promise<Record<string, unknown>> {
    const x = { method: 'PUT', path, headers: { ...headers, ...this.management() }, body, timeout: this.#s.timeout };
    return object(x, (await ask(this.#t, x, [200, 201])).json);
  }

  management(): Record<string, string> {
    return this.#s.adminToken ? { 'X-Broker-Admin-Token': this.#s.adminToken } : {};
  }

  /** What to do where the broker refuses management. */
  #closed(error: unknown, queue?: string): unknown {
    if (!(error instanceof ApiError) || (error.status !== 401 && error.status !== 403) || !closed.has(error.code)) return error;
    const what = queue === undefined ? `producer "${this.#s.producerId}"` : `queue "${queue}"`;
    return new PenstockError(
      `the broker at ${this.#s.url.origin} does not let this client make or read ${what} (${error.status} ${error.code}): ` +
        'set PENSTOCK_ADMIN_TOKEN, or the tokens PENSTOCK_CHANNEL_TOKEN and PENSTOCK_CONSUMER_TOKEN ' +
        '(a producer: PENSTOCK_PRODUCER_ID, PENSTOCK_PRODUCER_TOKEN)',
      error.code, error.status, { cause: error });
  }
}
