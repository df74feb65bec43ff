/** The names of BullMQ 6, on Penstock. */
export { LeaseLost, PenstockError } from './errors.js';
export type { Connection } from './bullmq/connection.js';
export { DelayedError, RateLimitError, UnrecoverableError, UnsupportedError, WaitingError } from './bullmq/errors.js';
export { QueueEvents, type QueueEventsOptions } from './bullmq/events.js';
export { Job, type JobState } from './bullmq/job.js';
export type { BackoffOptions, DeduplicationOptions, JobsOptions, KeepJobs } from './bullmq/options.js';
export { Queue, type BulkJob, type JobTemplate, type JobType, type QueueOptions } from './bullmq/queue.js';
export { FlowProducer, QueueEventsProducer } from './bullmq/refused.js';
export type { JobSchedulerJson, RepeatOptions } from './bullmq/scheduler.js';
export { Worker, type Processor, type WorkerOptions } from './bullmq/worker.js';
