import type { Client } from './client.js';

/** The JSON of a job, the same for the clients of all languages. */
export interface JobPayload {
  task: string;
  args: unknown[];
  kwargs: Record<string, unknown>;
  meta: Record<string, unknown>;
}

/** What a worker says of a job that it gives back or ends as dead. */
export interface Said {
  /** Few words that are the same for the same cause. */
  reason?: string;
  detail?: string;
}

/** A move of one job, in the names of the broker. */
export interface Update {
  ID: string;
  Lease?: string;
  NextState: 'DELIVERED' | 'DEAD' | 'QUEUED' | 'INFLIGHT';
  Delay?: number;
  Failed?: boolean;
  IncrementalTimeout?: number;
  Timeout?: number;
  Reason?: string;
  Detail?: string;
  /** The response to the message, with DELIVERED. */
  Response?: string;
  ResponseType?: string;
}

/** The answer to a move. */
export interface Updated {
  ID: string;
  Status: number;
  code?: string;
}

/** A job that this client has leased. */
export class LeasedJob {
  /** ID of the job; `messageId` is that of its message. */
  readonly id: string;
  readonly lease: string;
  /** From 1; lost leases count. */
  readonly attempt: number;
  /** Leases of the job that ended without a word. */
  readonly leasesLost: number;
  readonly givenBack: number;
  readonly priority: number;
  readonly messageId: string;
  readonly producerId: string;
  readonly headers: Record<string, string>;
  readonly contentType: string;
  readonly contentEncoding: string;
  readonly payload: Uint8Array;

  constructor(readonly client: Client, readonly channel: string, readonly consumer: string, json: Record<string, unknown>) {
    const m = (json['Message'] ?? {}) as Record<string, unknown>;
    this.id = String(json['ID']);
    this.lease = String(json['Lease']);
    this.attempt = Number(json['Attempt']) || 1;
    this.leasesLost = Number(json['LeasesLost']) || 0;
    this.givenBack = Number(json['GivenBack']) || 0;
    this.priority = Number(json['Priority']) || 0;
    this.messageId = String(m['MessageID'] ?? '');
    this.producerId = String(m['ProducerID'] ?? '');
    this.headers = (m['Headers'] ?? {}) as Record<string, string>;
    this.contentType = String(m['ContentType'] ?? '');
    this.contentEncoding = String(m['ContentEncoding'] ?? '');
    this.payload = Buffer.from(String(m['Payload'] ?? ''), m['PayloadEncoding'] === 'base64' ? 'base64' : 'utf8');
  }

  text(): string {
    return Buffer.from(this.payload).toString('utf8');
  }

  json(): unknown {
    return JSON.parse(this.text());
  }

  /** The job of a client, or undefined where the payload is none. */
  call(): JobPayload | undefined {
    let json: unknown;
    try {
      json = this.json();
    } catch {
      return undefined;
    }
    const p = json as JobPayload | null;
    if (p === null || typeof p !== 'object' || typeof p.task !== 'string') return undefined;
    const args = p.args ?? [];
    const kwargs = p.kwargs ?? {};
    const meta = p.meta ?? {};
    if (!Array.isArray(args) || !plain(kwargs) || !plain(meta)) return undefined;
    return { task: p.task, args, kwargs, meta };
  }

  /** The job is done. Throws LeaseLost where another worker has it meanwhile. */
  ack(): Promise<void> {
    return this.client.ack(this);
  }

  /** Gives the job back; with `failed` the attempt counts. */
  nack(o: Said & { delay?: number; failed?: boolean } = {}): Promise<void> {
    return this.client.nack(this, o);
  }

  /** Ends the job as a dead letter. */
  reject(o: Said = {}): Promise<void> {
    return this.client.reject(this, o);
  }

  /** Keeps the job for so many ms from now; default: the length of a lease. */
  extend(ms?: number): Promise<void> {
    return this.client.extend(this, ms);
  }

  /** Stores the response of this consumer to the message. */
  respond(body: unknown, contentType?: string): Promise<void> {
    return this.client.respond(this.channel, this.messageId, body, { consumer: this.consumer, ...(contentType ? { contentType } : {}) });
  }
}

function plain(x: unknown): x is Record<string, unknown> {
  return x !== null && typeof x === 'object' && !Array.isArray(x);
}
