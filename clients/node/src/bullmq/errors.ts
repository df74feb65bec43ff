import { PenstockError } from '../errors.js';

/** Thrown by a processor: the job fails for good, whatever attempts are left. */
export class UnrecoverableError extends PenstockError {
  constructor(message = 'bullmq:unrecoverable') {
    super(message, 'unrecoverable');
  }
}

/** Thrown by a processor after job.moveToDelayed: the job is due then, and that is no attempt. */
export class DelayedError extends PenstockError {
  constructor(message = 'bullmq:movedToDelayed') {
    super(message, 'delayed');
  }
}

/** Thrown by a processor after job.moveToWait: the job goes back, and that is no attempt. */
export class WaitingError extends PenstockError {
  constructor(message = 'bullmq:movedToWait') {
    super(message, 'waiting');
  }
}

/** Thrown by a processor after worker.rateLimit: the job goes back, and that is no attempt. */
export class RateLimitError extends PenstockError {
  constructor(message = 'bullmq:rateLimitExceeded') {
    super(message, 'rate_limit');
  }
}

/** A feature that this package does not have, by its name. */
export class UnsupportedError extends PenstockError {
  constructor(what: string, why: string) {
    super(`${what} is not supported: ${why}`, 'unsupported');
  }
}
