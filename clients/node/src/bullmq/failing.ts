import { isA } from '../errors.js';
import type { Ending } from '../loop.js';
import { bus } from './bus.js';
import type { Job } from './job.js';
import { backoffDelay } from './options.js';

/** What becomes of a job that failed: another attempt after its backoff, or the dead letters. */
export async function failing(job: Job, error: Error): Promise<Ending> {
  const { logs } = bus.of(job.queueName, job.id) ?? { logs: [] };
  const told = [error.stack ?? '', ...logs.slice(-20)].join('\n').slice(0, 1024);
  const said = { Reason: error.message.slice(0, 255) || error.name, Detail: told };
  const final = isA(error, 'UnrecoverableError') || isA(error, 'Reject') || (error as { retryable?: unknown }).retryable === false;
  if (final || job.attemptsMade >= job.attempts) return { NextState: 'DEAD', ...said };
  let ms = isA(error, 'Retry') ? Number((error as { delay?: unknown }).delay) || 0 : backoffDelay(job.attemptsMade, job.opts.backoff);
  if (ms === undefined) {
    const type = (job.opts.backoff as { type: string }).type;
    const strategy = job.settings?.backoffStrategy;
    if (!strategy) return { NextState: 'DEAD', Reason: `Unknown backoff strategy ${type}. If a custom backoff strategy is used, specify it when the worker is created.`.slice(0, 255), Detail: told };
    ms = await strategy(job.attemptsMade, type, error, job);
    if (ms < 0) return { NextState: 'DEAD', ...said };
  }
  return { NextState: 'QUEUED', Failed: true, Delay: Math.min(604_800, Math.max(1, Math.ceil(ms / 1000))), ...said };
}
