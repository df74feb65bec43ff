import { ApiError } from '../errors.js';
import type { JobPayload } from '../job.js';
import { segment } from '../wire.js';
import type { JobState, QueueLike } from './job.js';

/** What the broker knows of a job. */
export interface Standing {
  /** ID of the message, which is that of the job in BullMQ. */
  id: string;
  /** ID of the job at the broker; empty of a schedule. */
  jobId: string;
  state: JobState;
  /** The message is not there yet: it is scheduled. */
  schedule: boolean;
  recurrence: string;
  call: JobPayload;
  /** In the broker's terms: higher first. */
  priority: number;
  timestamp: number;
  changedAt: number;
  attempts: number;
  leasesLost: number;
  failedReason: string;
  detail: string;
  /** ms until it is due, of a delayed one. */
  delay?: number;
}

type Json = Record<string, unknown>;

/** Where the job with an ID stands: as a message, or as one that is sent later. */
export async function find(queue: QueueLike, id: string): Promise<Standing | undefined> {
  const message = await look(queue, `/channel/${queue.name}/message/${segment('job', id)}`);
  if (message) return ofMessage(queue, message);
  const schedule = await look(queue, `/channel/${queue.name}/scheduled-message/${id}`);
  return schedule && String(schedule['status']) === 'SCHEDULED' ? ofSchedule(schedule) : undefined;
}

/** Reads as management does, and as the producer where that is closed. */
export async function look(queue: QueueLike, path: string): Promise<Json | undefined> {
  const c = queue.client;
  try {
    return await c.manage.get(path);
  } catch (e) {
    if (!(e instanceof ApiError)) throw e;
    if (e.status === 404) return undefined;
    if (e.status !== 401 && e.status !== 403) throw e;
  }
  const id = path.split('/').pop()!;
  return path.includes('/scheduled-message/') ? c.scheduled(queue.name, id) : c.message(queue.name, id);
}

export function ofSchedule(s: Json): Standing {
  const due = Date.parse(String(s['dispatchSchedule']));
  const call = callOf(s['payload']);
  const { timestamp } = (call.meta['opts'] ?? {}) as { timestamp?: unknown };
  return {
    id: String(s['messageId'] || s['id']), jobId: '', state: 'delayed', schedule: true, recurrence: String(s['recurrence'] ?? ''),
    call, priority: Number(s['priority']) || 0, timestamp: typeof timestamp === 'number' ? timestamp : Date.now(), changedAt: 0, attempts: 0, leasesLost: 0,
    failedReason: '', detail: '', delay: Math.max(0, due - Date.now()),
  };
}

function ofMessage(queue: QueueLike, m: Json): Standing {
  const jobs = Array.isArray(m['Jobs']) ? (m['Jobs'] as Json[]) : [];
  const job = jobs.find((j) => j['ConsumerID'] === queue.name) ?? {};
  const next = Date.parse(String(job['NextAttemptAt'] ?? ''));
  const priority = Number(m['Priority']) || 0;
  return {
    id: String(m['ID']), jobId: String(job['ID'] ?? ''), state: stateOf(job, priority), schedule: false, recurrence: '',
    call: callOf(m['Payload']), priority, timestamp: Date.parse(String(m['ReceivedAt'])), changedAt: Date.parse(String(job['StatusChangedAt'])),
    attempts: Number(job['Attempts']) || 0, leasesLost: Number(job['LeasesLost']) || 0,
    failedReason: String(job['Reason'] || job['ReasonCode'] || 'failed'), detail: String(job['Detail'] ?? ''),
    ...(next > Date.now() ? { delay: next - Date.now() } : {}),
  };
}

export function stateOf(job: Json, priority = 1023): JobState {
  switch (job['Status']) {
    case 'DELIVERED':
      return 'completed';
    case 'DEAD':
      return job['ReasonCode'] === 'purged' ? 'unknown' : 'failed'; // drained: it is not there any more
    case 'INFLIGHT':
      return 'active';
    case 'QUEUED':
      if (Date.parse(String(job['NextAttemptAt'] ?? '')) > Date.now()) return 'delayed';
      return priority < 1023 && priority > 0 ? 'prioritized' : 'waiting';
    default:
      return 'unknown';
  }
}

function callOf(payload: unknown): JobPayload {
  try {
    const p = JSON.parse(String(payload)) as Partial<JobPayload> | null;
    if (p && typeof p === 'object' && typeof p.task === 'string') {
      return { task: p.task, args: p.args ?? [], kwargs: p.kwargs ?? {}, meta: p.meta ?? {} };
    }
  } catch {
    // It is no job of a client.
  }
  return { task: '', args: [payload], kwargs: {}, meta: {} };
}
