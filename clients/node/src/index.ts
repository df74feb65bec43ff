export { Client, type Claim, type ClaimOptions, type RequestAnswer, type ResponseEntry } from './client.js';
export type { BatchResult } from './batch.js';
export {
  ApiError, ConfigError, ConnectionError, Gone, GiveBack, LeaseLost, PenstockError, Reject, Retry, Stopped, TooManyRequests,
} from './errors.js';
export { LeasedJob, type JobPayload, type Said, type Update, type Updated } from './job.js';
export { Manage, type Fields } from './manage.js';
export type { Message, Payload, Published, PublishOptions } from './message.js';
export type { ClientOptions } from './settings.js';
export type { Answer, Exchange, Transport } from './transport.js';
export { Worker, type Handler, type Task, type WorkerOptions } from './worker.js';
export { version } from './version.js';
