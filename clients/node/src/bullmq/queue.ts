import type { Client } from '../client.js';
import { newId, type Message } from '../message.js';
import { ApiError, ConfigError } from '../errors.js';
import { refuseUnknown } from '../settings.js';
import { segment } from '../wire.js';
import { Adder } from './adder.js';
import { bus } from './bus.js';
import { clientOf, prepare, type Connection } from './connection.js';
import { deduplicate, sinceOf } from './dedup.js';
import { Emitter } from './emitter.js';
import { UnsupportedError } from './errors.js';
import { fromCall, Job, jobOf, remove, type JobState } from './job.js';
import { checkOptions, metaOf, publishing, type JobsOptions } from './options.js';
import { rhythm, schedulerJson, upsert, type JobSchedulerJson, type RepeatOptions } from './scheduler.js';
import { find, look, ofSchedule, type Standing } from './standing.js';

export interface QueueOptions {
  connection?: Connection;
  defaultJobOptions?: JobsOptions;
  /** Accepted and without meaning here. */
  prefix?: string;
  settings?: unknown;
  streams?: unknown;
  telemetry?: unknown;
  skipVersionCheck?: boolean;
  skipMetasUpdate?: boolean;
  blockingConnection?: boolean;
}

export type JobType = JobState | 'wait' | 'paused' | 'repeat' | 'waiting-children';

export interface BulkJob<D = any, N extends string = string> {
  name: N;
  data: D;
  opts?: JobsOptions;
}

export interface JobTemplate<D = any, N extends string = string> {
  name?: N;
  data?: D;
  opts?: JobsOptions;
}

const options = new Set([
  'connection', 'defaultJobOptions', 'prefix', 'settings', 'streams', 'telemetry', 'skipVersionCheck', 'skipMetasUpdate', 'blockingConnection',
]);
const states: JobType[] = ['waiting', 'prioritized', 'active', 'delayed', 'completed', 'failed'];

/** Pages of a list that one call reads at most. */
const mostPages = 1000;

/** Queue adds jobs and looks after them, as BullMQ 6's does. */
export class Queue<Data = any, Result = any, Name extends string = string> extends Emitter {
  readonly name: string;
  readonly opts: QueueOptions;
  readonly client: Client;
  readonly #own: boolean;
  readonly #adder: Adder;
  #closed = false;
  readonly #heard = (e: { queue: string; job: unknown; data: unknown }): void => {
    if (e.queue === this.name) this.emit('progress', e.job, e.data);
  };

  constructor(name: string, opts: QueueOptions = {}) {
    super();
    refuseUnknown('Queue', opts, options);
    segment('queue', name);
    checkOptions(opts.defaultJobOptions ?? {});
    [this.name, this.opts] = [name, opts];
    ({ client: this.client, own: this.#own } = clientOf(opts.connection));
    this.#adder = new Adder(this.client, name);
    bus.on('progress', this.#heard);
  }

  get defaultJobOptions(): JobsOptions {
    return this.opts.defaultJobOptions ?? {};
  }

  /**
   * Adds a job. With a jobId that exists it is that job: nothing is added. Jobs that are added at the
   * same time go to the broker in one request.
   */
  async add(name: Name, data: Data, opts: JobsOptions = {}): Promise<Job<Data, Result, Name>> {
    const o = this.#checked(name, data, opts);
    if (o.deduplication) {
      await prepare(this.client, this.name, (o.attempts ?? 1) - 1);
      return this.#once(name, data, o);
    }
    const id = o.jobId === undefined ? newId() : segment('job', o.jobId);
    const { payload, job } = this.#made(name, data, o, id);
    const adding = { ...publishing(name, id, o), messageId: id, contentType: 'application/json', payload: JSON.stringify(payload) };
    await prepare(this.client, this.name, (o.attempts ?? 1) - 1);
    try {
      const p = await this.#adder.add(adding);
      if (!p.duplicate) this.emit('waiting', job);
    } catch (e) {
      if (!(e instanceof ApiError && e.code === 'message_id_conflict' && o.jobId !== undefined)) throw e;
      return this.#standing(id, e);
    }
    return job;
  }

  /** The job that has the ID already. Where it cannot be read, nothing was added, and the conflict says so. */
  async #standing(id: string, conflict: Error): Promise<Job<Data, Result, Name>> {
    const standing = await find(this, id);
    if (!standing) throw conflict;
    return jobOf(this, standing);
  }

  async addBulk(jobs: BulkJob<Data, Name>[]): Promise<Job<Data, Result, Name>[]> {
    const checked = jobs.map((j) => ({ ...j, opts: this.#checked(j.name, j.data, j.opts ?? {}) }));
    await prepare(this.client, this.name, Math.max(0, ...checked.map((j) => (j.opts.attempts ?? 1) - 1)));
    const results: Job<Data, Result, Name>[] = new Array(jobs.length);
    const messages: Message[] = [];
    const places: number[] = [];
    for (const [i, j] of checked.entries()) {
      if (j.opts.deduplication) {
        results[i] = await this.#once(j.name, j.data, j.opts);
        continue;
      }
      const id = j.opts.jobId === undefined ? newId() : segment('job', j.opts.jobId);
      const { payload, job } = this.#made(j.name, j.data, j.opts, id);
      results[i] = job;
      places.push(i);
      messages.push({ ...publishing(j.name, id, j.opts), payload });
    }
    for (const [n, r] of (await this.client.publishMany(this.name, messages)).entries()) {
      const i = places[n]!;
      if (!r.error) continue;
      if (r.error.code !== 'message_id_conflict' || checked[i]!.opts.jobId === undefined) throw r.error;
      results[i] = await this.#standing(r.messageId, r.error);
    }
    return results;
  }

  #checked(name: string, data: unknown, opts: JobsOptions): JobsOptions {
    if (typeof name !== 'string' || !name) throw new ConfigError('a job needs a name');
    const o = { ...this.defaultJobOptions, ...checkOptions(opts) };
    if (o.sizeLimit !== undefined && Buffer.byteLength(JSON.stringify(data ?? {})) > o.sizeLimit) {
      throw new ConfigError(`The size of job ${name} exceeds the limit ${o.sizeLimit} bytes`);
    }
    return o;
  }

  #made(name: Name, data: Data, o: JobsOptions, id: string, since?: number): { payload: object; job: Job<Data, Result, Name> } {
    const value = (data === undefined ? {} : data) as Data;
    // A delayed job becomes a message later than it was added, so it says when that was.
    const added = o.delay && o.timestamp === undefined ? { ...o, timestamp: this.client.now() } : o;
    const meta = { ...metaOf(added), ...(since === undefined ? {} : { since }) };
    return { payload: { task: name, args: [value], kwargs: {}, meta }, job: new Job(this, name, value, added, id) };
  }

  async #once(name: Name, data: Data, o: JobsOptions): Promise<Job<Data, Result, Name>> {
    const d = o.deduplication!;
    for (let n = 0; ; n++) {
      const now = this.client.now();
      const { standing, id } = await deduplicate(this, d, now);
      if (standing) {
        const replaced = d.replace && standing.schedule ? await this.#replace(name, data, o, standing, d.extend ? now : sinceOf(standing)) : undefined;
        if (d.replace && standing.schedule && !replaced && n < 5) continue; // its time has come meanwhile
        this.emit('deduplicated', standing.id);
        return replaced ?? jobOf(this, standing);
      }
      const { payload, job } = this.#made(name, data, o, id, d.ttl === undefined ? undefined : now);
      try {
        const p = await this.client.publish(this.name, payload, publishing(name, id, o));
        if (!p.duplicate) return job;
      } catch (e) {
        if (!(e instanceof ApiError && e.code === 'message_id_conflict')) throw e;
      }
      if (n >= 5) return job; // another process has added it meanwhile
    }
  }

  /** Gives the delayed job other data, and its delay anew. Undefined: it is not delayed any more. */
  async #replace(name: Name, data: Data, o: JobsOptions, standing: Standing, since: number): Promise<Job<Data, Result, Name> | undefined> {
    const { payload, job } = this.#made(name, data, o, standing.id, o.deduplication!.ttl === undefined ? undefined : since);
    try {
      await this.client.reschedule(this.name, standing.id, { ...publishing(name, undefined, { ...o, delay: 0 }), delay: o.delay ?? 0, payload });
      return job;
    } catch (e) {
      if (e instanceof ApiError && (e.status === 404 || e.code === 'already_dispatched')) return undefined;
      throw e;
    }
  }

  getJob(id: string): Promise<Job<Data, Result, Name> | undefined> {
    return Job.fromId(this, id);
  }

  async getJobState(id: string): Promise<JobState> {
    return (await find(this, id))?.state ?? 'unknown';
  }

  /** Jobs of some states, oldest first with `asc`, from `start` to `end`, both included. */
  async getJobs(types?: JobType | JobType[], start = 0, end = -1, asc = false): Promise<Job<Data, Result, Name>[]> {
    const list = types === undefined ? states : Array.isArray(types) ? types : [types];
    const wanted = end < 0 ? Infinity : end + 1;
    const found: Standing[] = [];
    for (const type of new Set(list.map(typeOf))) {
      for await (const standing of this.#standings(type)) {
        found.push(standing);
        if (asc && found.length >= wanted && list.length === 1) break;
      }
    }
    found.sort((a, b) => (a.timestamp - b.timestamp || (a.id < b.id ? -1 : 1)) * (asc ? 1 : -1));
    return Promise.all(found.slice(start, wanted).map((s) => jobOf<Data, Result, Name>(this, s)));
  }

  async *#standings(type: JobType): AsyncGenerator<Standing> {
    if (type === 'delayed') {
      for await (const path of this.#links(`/channel/${this.name}/scheduled-messages?status=SCHEDULED`)) {
        const s = await look(this, path);
        if (s && !s['recurrence']) yield ofSchedule(s);
      }
    }
    const of = `/channel/${this.name}/consumer/${this.name}`;
    const lists: Partial<Record<JobType, string>> = {
      waiting: `${of}/jobs?status=QUEUED`, prioritized: `${of}/jobs?status=QUEUED`, delayed: `${of}/jobs?status=DELAYED`,
      active: `${of}/jobs?status=INFLIGHT`, failed: `${of}/dlq`, completed: `/channel/${this.name}/messages?consumer=${this.name}&status=DELIVERED`,
    };
    for await (const entry of this.#entries(lists[type] ?? '')) {
      const link = typeof entry === 'string' ? entry : String(entry['MessageURL']);
      const standing = await find(this, link.split('/').pop()!);
      if (!standing || (standing.state !== type && !(type === 'waiting' && standing.state === 'waiting'))) continue;
      if (typeof entry !== 'string' && entry['Detail']) standing.detail = String(entry['Detail']);
      yield standing;
    }
  }

  async *#links(path: string): AsyncGenerator<string> {
    for await (const entry of this.#entries(path)) yield String(entry);
  }

  async *#entries(path: string): AsyncGenerator<string | Record<string, unknown>> {
    let next = path && `${path}${path.includes('?') ? '&' : '?'}limit=100`;
    for (let n = 0; next && n < mostPages; n++) {
      const page: Record<string, unknown> = await this.client.manage.get(next, { channel: this.name, consumer: this.name });
      for (const entry of (page['Result'] ?? page['DeadJobs'] ?? []) as (string | Record<string, unknown>)[]) yield entry;
      next = String((page['Pages'] as Record<string, unknown> | undefined)?.['next'] ?? '');
    }
  }

  /** How many jobs are in each state. */
  async getJobCounts(...types: JobType[]): Promise<Record<string, number>> {
    await prepare(this.client, this.name);
    const list: JobType[] = types.length > 0 ? types : [...states, 'paused', 'waiting-children'];
    const consumer = await this.client.manage.consumer(this.name, this.name);
    const counts: Record<string, number> = {};
    const has = (...some: JobType[]): boolean => some.some((t) => list.includes(t));
    let [queued, later, prioritized] = [Number(consumer['Queued']) || 0, 0, 0];
    if (has('delayed', 'waiting', 'wait', 'paused', 'prioritized')) {
      for await (const e of this.#entries(`/channel/${this.name}/consumer/${this.name}/jobs?status=DELAYED`)) if (e) later++;
    }
    if (has('prioritized', 'waiting', 'wait', 'paused') && queued > 0) prioritized = await this.#prioritized();
    const paused = consumer['State'] === 'PAUSED';
    const waiting = Math.max(0, queued - later - prioritized);
    for (const type of list) {
      if (type === 'waiting' || type === 'wait') counts[type] = paused ? 0 : waiting;
      else if (type === 'paused') counts[type] = paused ? waiting : 0;
      else if (type === 'prioritized') counts[type] = prioritized;
      else if (type === 'active') counts[type] = Number(consumer['InFlight']) || 0;
      else if (type === 'failed') counts[type] = Number(consumer['DeadLetters']) || 0;
      else if (type === 'delayed') counts[type] = later + (await this.#scheduled());
      else if (type === 'completed') counts[type] = await this.#completed();
      else counts[type] = 0;
    }
    return counts;
  }

  /** Jobs that wait and have a priority; the first hundred waiting jobs say whether there are any. */
  async #prioritized(): Promise<number> {
    let n = 0;
    for await (const s of this.#standings('prioritized')) if (s) n++;
    return n;
  }

  async #scheduled(): Promise<number> {
    let n = 0;
    for await (const path of this.#links(`/channel/${this.name}/scheduled-messages?status=SCHEDULED`)) {
      const s = await look(this, path);
      if (s && !s['recurrence']) n++;
    }
    return n;
  }

  /** The books of the consumer; those of retention's age are gone. */
  async #completed(): Promise<number> {
    const books = await this.client.manage.get(`/channel/${this.name}/reconcile`);
    const mine = ((books['Result'] ?? []) as Record<string, unknown>[]).find((b) => b['ConsumerID'] === this.name);
    return Number(mine?.['Delivered']) || 0;
  }

  async getJobCountByTypes(...types: JobType[]): Promise<number> {
    return Object.values(await this.getJobCounts(...types)).reduce((a, b) => a + b, 0);
  }

  /** Jobs that wait: those that are due, prioritized or delayed. */
  count(): Promise<number> {
    return this.getJobCountByTypes('waiting', 'paused', 'delayed', 'prioritized');
  }

  getWaiting(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['waiting'], start, end, true);
  }
  getActive(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['active'], start, end, true);
  }
  getDelayed(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['delayed'], start, end, true);
  }
  getPrioritized(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['prioritized'], start, end, true);
  }
  getCompleted(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['completed'], start, end, false);
  }
  getFailed(start = 0, end = -1): Promise<Job<Data, Result, Name>[]> {
    return this.getJobs(['failed'], start, end, false);
  }
  getWaitingCount(): Promise<number> {
    return this.getJobCountByTypes('waiting', 'paused');
  }
  getActiveCount(): Promise<number> {
    return this.getJobCountByTypes('active');
  }
  getDelayedCount(): Promise<number> {
    return this.getJobCountByTypes('delayed');
  }
  getCompletedCount(): Promise<number> {
    return this.getJobCountByTypes('completed');
  }
  getFailedCount(): Promise<number> {
    return this.getJobCountByTypes('failed');
  }
  getPrioritizedCount(): Promise<number> {
    return this.getJobCountByTypes('prioritized');
  }

  /** Log lines of a job that workers of this process wrote; of a failed one also what the broker keeps. */
  async getJobLogs(id: string, start = 0, end = -1, asc = true): Promise<{ logs: string[]; count: number }> {
    const logs = [...(bus.of(this.name, id)?.logs ?? [])];
    if (!asc) logs.reverse();
    return { logs: logs.slice(start, end < 0 ? undefined : end + 1), count: logs.length };
  }

  /** No worker gets a job until resume; jobs that run go on. */
  async pause(): Promise<void> {
    await prepare(this.client, this.name);
    await this.client.manage.pause(this.name, this.name);
    this.emit('paused');
  }

  async resume(): Promise<void> {
    await prepare(this.client, this.name);
    await this.client.manage.resume(this.name, this.name);
    this.emit('resumed');
  }

  async isPaused(): Promise<boolean> {
    await prepare(this.client, this.name);
    return (await this.client.manage.consumer(this.name, this.name))['State'] === 'PAUSED';
  }

  /** At most so many jobs of the queue run at a time, of all workers together. */
  async setGlobalConcurrency(concurrency: number): Promise<void> {
    await prepare(this.client, this.name);
    await this.client.manage.putConsumer(this.name, this.name, { concurrency });
  }

  async removeGlobalConcurrency(): Promise<void> {
    await this.client.manage.putConsumer(this.name, this.name, { concurrency: '' });
  }

  /** At most so many jobs begin in any `duration` ms, of all workers together. */
  async setGlobalRateLimit(max: number, duration: number): Promise<void> {
    await prepare(this.client, this.name);
    await this.client.manage.putConsumer(this.name, this.name, { rateLimit: `${max}/${duration}ms` });
  }

  async removeGlobalRateLimit(): Promise<void> {
    await this.client.manage.putConsumer(this.name, this.name, { rateLimit: '' });
  }

  /** Ends all jobs that wait; with `delayed` also those that are due later. */
  async drain(delayed = false): Promise<void> {
    await prepare(this.client, this.name);
    await this.client.manage.purge(this.name, this.name, true);
    if (!delayed) return;
    for (const job of await this.getJobs(['delayed'])) await this.remove(job.id);
  }

  /** Removes jobs of a state that are older than `grace` ms. Completed ones leave with retention. */
  async clean(grace: number, limit = 0, type: JobType = 'completed'): Promise<string[]> {
    if (typeOf(type) === 'completed') return [];
    const removed: string[] = [];
    for await (const s of this.#standings(typeOf(type))) {
      if (limit > 0 && removed.length >= limit) break;
      const at = s.state === 'failed' ? s.changedAt : s.timestamp;
      if (Date.now() - at >= grace && (await remove(this, s))) removed.push(s.id);
    }
    this.emit('cleaned', removed, type);
    return removed;
  }

  /** Ends a job that waits. 1: it is removed; 0: it is not there, or runs. */
  async remove(id: string): Promise<number> {
    const standing = await find(this, id);
    if (!standing || !(await remove(this, standing))) return 0;
    this.emit('removed', id);
    return 1;
  }

  /** Puts all failed jobs back. */
  async retryJobs(_opts: { count?: number; state?: 'failed' | 'completed'; timestamp?: number } = {}): Promise<void> {
    if (_opts.state === 'completed') throw new UnsupportedError('retryJobs of completed jobs', 'replay them (docs/messages.md)');
    await this.client.manage.redrive(this.name, this.name, _opts.timestamp ? { To: new Date(_opts.timestamp).toISOString() } : {});
  }

  /** Makes all delayed jobs due now. */
  async promoteJobs(): Promise<void> {
    await this.client.manage.post(`/channel/${this.name}/consumer/${this.name}/retry`, undefined, { channel: this.name, consumer: this.name });
    for await (const path of this.#links(`/channel/${this.name}/scheduled-messages?status=SCHEDULED`)) {
      const s = await look(this, path);
      if (s && !s['recurrence']) await this.client.reschedule(this.name, ofSchedule(s).id, { delay: 0 });
    }
  }

  /** Makes jobs by a rhythm, under one identity: whoever calls it first makes it, others change it. */
  async upsertJobScheduler(id: string, repeat: RepeatOptions, template: JobTemplate<Data, Name> = {}): Promise<Job<Data, Result, Name>> {
    if (id.length > 240) throw new ConfigError('the ID of a job scheduler has at most 240 characters');
    const name = (template.name ?? id) as Name;
    const o = this.#checked(name, template.data, template.opts ?? {});
    for (const forbidden of ['jobId', 'delay', 'deduplication'] as const) {
      if (o[forbidden] !== undefined) throw new ConfigError(`${forbidden} is not for the jobs of a scheduler: it gives them IDs and times`);
    }
    rhythm(repeat, this.client.now(), 1000); // what is wrong is refused before the queue is made
    await prepare(this.client, this.name, (o.attempts ?? 1) - 1);
    const { startDate: _a, endDate: _b, ...rest } = repeat;
    const data = template.data === undefined ? {} : template.data;
    // A first time that is past when the broker reads it, because the way was slow or its clock is ahead, is put off.
    const made = async (lead: number): Promise<[Standing, object]> => {
      const r = rhythm(repeat, this.client.now(), lead);
      const shown = { ...rest, ...(r.start === undefined ? {} : { startDate: r.start }), ...(r.end === undefined ? {} : { endDate: r.end }) };
      const payload = { task: name, args: [data], kwargs: {}, meta: { ...metaOf(o), scheduler: id, repeat: shown } };
      try {
        return [await upsert(this, segment('job scheduler', id), repeat, r, payload, publishing(name, undefined, o)), payload];
      } catch (e) {
        if (e instanceof ApiError && e.code === 'schedule_too_soon' && lead < 60_000) return made(lead * 4);
        throw e;
      }
    };
    const [standing, payload] = await made(1000);
    if (repeat.immediately && repeat.pattern !== undefined) {
      await this.client.publish(this.name, payload, publishing(name, `${id}.0`, o)).catch((e: unknown) => {
        if (!(e instanceof ApiError && e.code === 'message_id_conflict')) throw e;
      });
    }
    const job = fromCall<Data, Result, Name>(this, standing.id, standing.call, standing.priority);
    job.delay = standing.delay ?? 0;
    return job;
  }

  async getJobScheduler(id: string): Promise<JobSchedulerJson | undefined> {
    const s = await look(this, `/channel/${this.name}/scheduled-message/${segment('job scheduler', id)}`);
    return s && s['recurrence'] && s['status'] === 'SCHEDULED' ? schedulerJson(ofSchedule(s)) : undefined;
  }

  async getJobSchedulers(start = 0, end = -1, asc = false): Promise<JobSchedulerJson[]> {
    const found: JobSchedulerJson[] = [];
    for await (const path of this.#links(`/channel/${this.name}/scheduled-messages?status=SCHEDULED`)) {
      const s = await look(this, path);
      if (s?.['recurrence']) found.push(schedulerJson(ofSchedule(s)));
    }
    found.sort((a, b) => ((a.next ?? 0) - (b.next ?? 0)) * (asc ? 1 : -1));
    return found.slice(start, end < 0 ? undefined : end + 1);
  }

  async getJobSchedulersCount(): Promise<number> {
    return (await this.getJobSchedulers()).length;
  }

  removeJobScheduler(id: string): Promise<boolean> {
    return this.client.unschedule(this.name, segment('job scheduler', id));
  }

  /** The workers that the broker heard of within a minute. */
  async getWorkers(): Promise<Record<string, unknown>[]> {
    const list = await this.client.manage.get(`/channel/${this.name}/consumer/${this.name}/workers`, { channel: this.name, consumer: this.name });
    return ((list['Result'] ?? []) as Record<string, unknown>[]).map((w) => ({ name: w['Name'], id: w['Name'], ...w }));
  }

  async getWorkersCount(): Promise<number> {
    return (await this.getWorkers()).length;
  }

  obliterate(): Promise<void> {
    return Promise.reject(new UnsupportedError('obliterate', 'use drain, or delete the channel at the broker'));
  }

  async waitUntilReady(): Promise<Client> {
    await prepare(this.client, this.name);
    return this.client;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    bus.off('progress', this.#heard);
    if (this.#own) await this.client.close();
  }

  disconnect(): Promise<void> {
    return this.close();
  }
}

function typeOf(type: JobType): JobType {
  return type === 'wait' || type === 'paused' ? 'waiting' : type;
}

