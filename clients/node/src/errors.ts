/**
 * Every error of this package extends PenstockError. Code that gets errors from both builds of the
 * package (import and require) compares `name` or `code`: each class is known by its name.
 */
export class PenstockError extends Error {
  /** A stable word for programs: the `code` of the broker's problem, or one of this client. */
  readonly code: string;
  /** HTTP status of the broker's answer; 0: there is none. */
  readonly status: number;

  constructor(message: string, code = 'penstock', status = 0, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
    this.status = status;
  }
}

/** The broker answered with an error. */
export class ApiError extends PenstockError {
  /** The sentence of the broker. */
  readonly detail: string;
  /** ID of the request in the broker's log. */
  readonly requestId: string;
  /** Seconds after which the broker wants to be asked again; undefined: it does not say. */
  readonly retryAfter: number | undefined;

  constructor(what: string, status: number, code: string, detail: string, requestId = '', retryAfter?: number) {
    super(`${what}: ${status} ${code}${detail ? `: ${detail}` : ''}`, code, status);
    this.detail = detail;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }
}

/** No usable answer came: `timeout`, `connection`, `bad_answer`, `answer_too_large` or `closed`. */
export class ConnectionError extends PenstockError {}

/** A setting or an option cannot be. */
export class ConfigError extends PenstockError {
  constructor(message: string) {
    super(message, 'config');
  }
}

/** The lease of a job is another worker's, or over: what this worker reports of the job is refused. */
export class LeaseLost extends PenstockError {
  constructor(message = 'the lease of the job is lost') {
    super(message, 'lease_lost', 409);
  }
}

/** The reason of a job's signal when its worker ends before the job does. The job is given back. */
export class Stopped extends PenstockError {
  constructor(message = 'the worker stops') {
    super(message, 'stopped');
  }
}

/** Thrown by a handler: the job fails for good and is a dead letter, whatever attempts are left. */
export class Reject extends PenstockError {
  constructor(message = 'the job was rejected', code = 'reject') {
    super(message, code);
  }
}

/** Thrown by a handler: the job is tried again after `delay` ms, and the attempt counts. */
export class Retry extends PenstockError {
  constructor(message = 'the job is tried again', readonly delay = 0) {
    super(message, 'retry');
  }
}

/** Thrown by a handler: the job is given back for `delay` ms. That is no attempt. */
export class GiveBack extends PenstockError {
  constructor(message = 'the job was given back', readonly delay = 0, code = 'give_back') {
    super(message, code);
  }
}

/** Thrown by a function that handles push: the broker holds all jobs of the consumer (410). */
export class Gone extends PenstockError {
  constructor(message = 'gone') {
    super(message, 'gone', 410);
  }
}

/** Thrown by a function that handles push: the broker sends nothing for so many seconds (429). */
export class TooManyRequests extends PenstockError {
  readonly retryAfter: number;

  constructor(retryAfter: number | { retryAfter?: number; retry_after?: number } = 1) {
    super('too many requests', 'too_many_requests', 429);
    const n = typeof retryAfter === 'number' ? retryAfter : (retryAfter.retryAfter ?? retryAfter.retry_after ?? 1);
    if (!Number.isFinite(n) || n < 0) throw new ConfigError('retryAfter must be a number of seconds from 0');
    this.retryAfter = Math.ceil(n);
  }
}

/** Reports whether an error is of a class of this package with that name, from whatever build of it. */
export function isA(error: unknown, name: string): boolean {
  for (let e = error as { name?: unknown; constructor?: { name?: unknown } } | null; e instanceof Error; ) {
    if (e.name === name) return true;
    let prototype: object | null = Object.getPrototypeOf(e);
    while (prototype && prototype !== Error.prototype) {
      if ((prototype.constructor as { name?: string }).name === name) return true;
      prototype = Object.getPrototypeOf(prototype);
    }
    return false;
  }
  return false;
}
