import { ApiError, ConfigError } from '../errors.js';
import { refuseUnknown } from '../settings.js';
import { UnsupportedError } from './errors.js';
import type { QueueLike } from './job.js';
import { look, ofSchedule, type Standing } from './standing.js';

/** When a scheduler makes jobs: `every` ms, or by the fields of `pattern`. */
export interface RepeatOptions {
  every?: number;
  /** cron: minute, hour, day, month, day of week; seconds before them where they are 0 or every n. */
  pattern?: string;
  tz?: string;
  limit?: number;
  startDate?: Date | number | string;
  endDate?: Date | number | string;
  immediately?: boolean;
  offset?: number;
  count?: number;
}

export interface JobSchedulerJson {
  key: string;
  id: string;
  name: string;
  next?: number;
  every?: number;
  pattern?: string;
  tz?: string;
  limit?: number;
  /** ms since 1970. */
  startDate?: number;
  endDate?: number;
  offset?: number;
  iterationCount?: number;
  template?: { data?: unknown; opts?: unknown };
}

const known = new Set(['every', 'pattern', 'tz', 'limit', 'startDate', 'endDate', 'immediately', 'offset', 'count']);

/** When the broker sends the messages of a scheduler. */
export interface Rhythm {
  recurrence: string;
  /** Of cron fields: not before that time. */
  from?: Date;
  /** What two schedulers with the same rhythm have in common, whenever they began. */
  same: string;
  /** The start, where it is still to come, and the end; ms since 1970. */
  start?: number;
  end?: number;
}

/** The rhythm of the options: an interval begins `lead` ms from now, or at its start where that is later. */
export function rhythm(o: RepeatOptions, now: number, lead: number): Rhythm {
  refuseUnknown('a job scheduler', o, known);
  if ((o.every === undefined) === (o.pattern === undefined)) throw new ConfigError('a job scheduler needs either every or pattern');
  if (o.count !== undefined) throw new UnsupportedError('count of a scheduler', 'the broker numbers its jobs from 1: make limit smaller instead');
  if (o.limit !== undefined && !(Number.isInteger(o.limit) && o.limit >= 1)) throw new ConfigError('limit of a scheduler must be a whole number from 1');
  if (o.offset !== undefined && !Number.isFinite(o.offset)) throw new ConfigError('offset of a scheduler must be a number of ms');
  const date = o.startDate === undefined ? undefined : dateOf('startDate', o.startDate);
  const start = date && date.getTime() > now ? date : undefined;
  const begins = start ? { start: start.getTime() } : {};
  const every = o.every ?? secondsOf(o.pattern!);
  if (every !== undefined) return { ...interval(o, every, start, now + lead), ...begins };
  const reasons = {
    limit: 'cron fields have no count at the broker: use every, or removeJobScheduler after the last job',
    endDate: 'cron fields have no end at the broker: use every, or removeJobScheduler at that time',
    offset: 'cron fields are times of the clock: say them in the pattern, or use every',
  };
  for (const [name, why] of Object.entries(reasons) as [keyof typeof reasons, string][]) {
    if (o[name] !== undefined) throw new UnsupportedError(`${name} of a scheduler with a pattern`, why);
  }
  const fields = fieldsOf(o.pattern!);
  const recurrence = `cron:${o.tz ? `TZ=${o.tz} ` : ''}${fields}`;
  return { recurrence, same: recurrence, ...begins, ...(start ? { from: start } : {}) };
}

function interval(o: RepeatOptions, every: number, start: Date | undefined, earliest: number): Rhythm {
  if (!(Number.isFinite(every) && every >= 1000)) throw new ConfigError('every must be at least 1000 ms');
  let first = Math.max(earliest, start?.getTime() ?? 0);
  if (o.offset !== undefined) first = Math.ceil((first - o.offset) / every) * every + o.offset;
  let count = o.limit;
  const end = o.endDate === undefined ? undefined : dateOf('endDate', o.endDate).getTime();
  if (end !== undefined) {
    const most = Math.floor((end - first) / every) + 1;
    if (most < 1) throw new ConfigError('endDate is before the first job');
    count = Math.min(count ?? most, most);
  }
  const length = `PT${every / 1000}S`;
  return { recurrence: `R${count ?? ''}/${new Date(first).toISOString()}/${length}`, same: `R${end === undefined ? (count ?? '') : 'end'}/${length}`, ...(end === undefined ? {} : { end }) };
}

/** A pattern of six fields is an interval where its seconds are every n and the others every. */
function secondsOf(pattern: string): number | undefined {
  const six = /^\*(?:\/(\d{1,2}))? \* \* \* \* \*$/.exec(pattern.trim().replace(/\s+/g, ' '));
  return six ? Number(six[1] ?? 1) * 1000 : undefined;
}

const named: Record<string, string> = {
  '@yearly': '0 0 1 1 *', '@annually': '0 0 1 1 *', '@monthly': '0 0 1 * *', '@weekly': '0 0 * * 0', '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *', '@hourly': '0 * * * *',
};

function fieldsOf(pattern: string): string {
  const text = named[pattern.trim()] ?? pattern.trim().replace(/\?/g, '*');
  const fields = text.split(/\s+/);
  if (fields.length === 6) {
    const seconds = fields.shift()!;
    if (!/^0+$/.test(seconds)) throw new UnsupportedError(`the pattern ${JSON.stringify(pattern)}`, 'its seconds must be 0, or every n with every other field *');
  }
  if (fields.length !== 5) throw new ConfigError(`the pattern ${JSON.stringify(pattern)} must have five or six fields`);
  return fields.join(' ');
}

function dateOf(name: string, value: Date | number | string): Date {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) throw new ConfigError(`${name} must be a date`);
  return date;
}

/** What two recurrences of the broker have in common: see Rhythm.same. */
function sameOf(recurrence: string, bounded: boolean): string {
  const r = /^R(\d*)\/[^/]*\/(.*)$/.exec(recurrence);
  if (!r) return recurrence;
  return `R${bounded ? 'end' : r[1]}/${normal(r[2]!)}`;
}

function normal(interval: string): string {
  const m = /^PT([\d.]+)S$/.exec(interval);
  return m ? `PT${Number(m[1])}S` : interval;
}

/**
 * Reports whether a schedule has the times that are wanted. A start that is past changes nothing: a
 * program that begins its rhythm when it starts does not begin it anew.
 */
function sameTimes(found: Record<string, unknown>, o: RepeatOptions, r: Rhythm): boolean {
  const had = (ofSchedule(found).call.meta['repeat'] ?? {}) as RepeatOptions;
  return sameOf(String(found['recurrence']), r.end !== undefined) === r.same && had.endDate === r.end && had.limit === o.limit
    && had.offset === o.offset && (r.start === undefined || had.startDate === r.start);
}

/**
 * Makes or changes the schedule with the ID of the scheduler. Whoever starts first makes it; the others
 * find it, so it is never doubled, and a restart does not begin its rhythm anew.
 */
export async function upsert(queue: QueueLike, id: string, o: RepeatOptions, r: Rhythm, payload: unknown, publishing: object): Promise<Standing> {
  const c = queue.client;
  const text = JSON.stringify(payload);
  const time = { recurrence: r.recurrence, ...(r.from ? { scheduledFor: r.from } : {}) };
  for (let n = 0; n < 5; n++) {
    const found = await look(queue, `/channel/${queue.name}/scheduled-message/${id}`);
    if (!found || found['status'] !== 'SCHEDULED') {
      try {
        await c.publish(queue.name, payload, { ...publishing, messageId: id, ...time });
      } catch (e) {
        // Another process was first: it is looked at what that one has made.
        if (!(e instanceof ApiError && e.code === 'message_id_conflict')) throw e;
        if (found) throw new ConfigError(`the job scheduler ${JSON.stringify(id)} is over: choose another ID for a new one`);
      }
      continue;
    }
    const sameTime = sameTimes(found, o, r);
    if (sameTime && found['payload'] === text) return ofSchedule(found);
    try {
      const changed = await c.reschedule(queue.name, id, { ...publishing, ...(sameTime ? {} : time), payload });
      return ofSchedule(changed);
    } catch (e) {
      if (!(e instanceof ApiError && (e.status === 404 || e.code === 'already_dispatched'))) throw e;
    }
  }
  throw new ConfigError(`the job scheduler ${JSON.stringify(id)} cannot be made: it is changed by others again and again`);
}

export function schedulerJson(s: Standing): JobSchedulerJson {
  const repeat = (s.call.meta['repeat'] ?? {}) as RepeatOptions;
  const { scheduler: _s, repeat: _r, ...meta } = s.call.meta;
  return {
    key: s.id, id: s.id, name: s.call.task, next: Date.now() + (s.delay ?? 0),
    ...(repeat.every === undefined ? {} : { every: repeat.every }), ...(repeat.pattern === undefined ? {} : { pattern: repeat.pattern }),
    ...(repeat.tz === undefined ? {} : { tz: repeat.tz }), ...(repeat.limit === undefined ? {} : { limit: repeat.limit }),
    ...(typeof repeat.startDate === 'number' ? { startDate: repeat.startDate } : {}), ...(typeof repeat.endDate === 'number' ? { endDate: repeat.endDate } : {}),
    ...(repeat.offset === undefined ? {} : { offset: repeat.offset }),
    template: { data: s.call.args[0], opts: meta['opts'] ?? {} },
  };
}
