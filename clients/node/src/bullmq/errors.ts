import { GiveBack, PenstockError, Reject } from '../errors.js';

// BullMQ's names of what a handler throws: each is one of the errors that every worker knows.

/** Thrown by a processor: the job fails for good, whatever attempts are left. */
export class UnrecoverableError extends Reject {
  constructor(message = 'bullmq:unrecoverable') {
    super(message, 'unrecoverable');
  }
}

/** Thrown by a processor after job.moveToDelayed: the job is due then, and that is no attempt. */
export class DelayedError extends GiveBack {
  constructor(message = 'bullmq:movedToDelayed') {
    super(message, 0, 'delayed');
  }
}

/** Thrown by a processor after job.moveToWait: the job goes back, and that is no attempt. */
export class WaitingError extends GiveBack {
  constructor(message = 'bullmq:movedToWait') {
    super(message, 0, 'waiting');
  }
}

/** Thrown by a processor after worker.rateLimit: the job goes back, and that is no attempt. */
export class RateLimitError extends GiveBack {
  constructor(message = 'bullmq:rateLimitExceeded') {
    super(message, 0, 'rate_limit');
  }
}

/** A feature that this package does not have, by its name. */
export class UnsupportedError extends PenstockError {
  constructor(what: string, why: string) {
    super(`${what} is not supported: ${why}`, 'unsupported');
  }
}
