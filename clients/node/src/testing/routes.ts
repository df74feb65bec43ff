import type { Exchange } from '../transport.js';
import { msOf, type Channel, type Later, type Stored, type TestBroker } from './broker.js';
import { nextTime } from './cron.js';

interface Reply {
  status: number;
  headers?: Record<string, string>;
  json?: unknown;
}

/** A request that was read. */
interface Call {
  b: TestBroker;
  x: Exchange;
  headers: Record<string, string>;
  query: URLSearchParams;
  body: string;
  /** The IDs of the path. */
  ids: string[];
  channel: Channel;
}

const problem = (status: number, code: string, detail = ''): Reply => ({ status, json: { status, code, detail } });

/** The routes of the test broker: a method, a path whose IDs are `*`, and what it does. */
const table: [string, string, (c: Call) => Reply | Promise<Reply>][] = [
  ['PUT', '/producer/*', () => ({ status: 200, json: { ID: 'penstock', Token: 'test' } })],
  ['PUT', '/channel/*', (c) => ({ status: 200, json: { ID: c.ids[0], Token: 'test' } })],
  ['PUT', '/channel/*/consumer/*', putConsumer],
  ['GET', '/channel/*/consumer/*', (c) => ({ status: 200, json: shown(c) })],
  ['POST', '/channel/*/consumer/*/pause', (c) => ((c.channel.paused = true), { status: 200, json: shown(c) })],
  ['POST', '/channel/*/consumer/*/resume', (c) => ((c.channel.paused = false), c.b.changed(), { status: 200, json: shown(c) })],
  ['POST', '/channel/*/consumer/*/purge', purge],
  ['POST', '/channel/*/consumer/*/claim', claim],
  ['POST', '/channel/*/consumer/*/jobs', moves],
  ['POST', '/channel/*/consumer/*/job/*', moveOne],
  ['GET', '/channel/*/consumer/*/job/*', (c) => (byJob(c) ? { status: 200, json: jobOf(c.b, byJob(c)!) } : problem(404, 'job_not_found'))],
  ['POST', '/channel/*/consumer/*/job/*/requeue-dead-job', redriveOne],
  ['DELETE', '/channel/*/consumer/*/job/*', (c) => (byJob(c)?.state === 'DEAD' && c.channel.messages.delete(byJob(c)!.id) ? { status: 204 } : problem(409, 'job_not_dead'))],
  ['POST', '/channel/*/consumer/*/dlq/redrive', redriveAll],
  ['GET', '/channel/*/consumer/*/dlq', (c) => ({ status: 200, json: { DeadJobs: list(c, 'DEAD').map((m) => jobOf(c.b, m)), Pages: {} } })],
  ['GET', '/channel/*/consumer/*/jobs', (c) => ({ status: 200, json: { Result: list(c, c.query.get('status') ?? '').map((m) => jobOf(c.b, m)), Pages: {} } })],
  ['GET', '/channel/*/consumer/*/workers', () => ({ status: 200, json: { Result: [], Pages: {} } })],
  ['POST', '/channel/*/consumer/*/retry', (c) => (list(c, 'DELAYED').forEach((m) => (m.due = c.b.now())), c.b.changed(), { status: 200, json: { Retried: 0 } })],
  ['POST', '/channel/*/broadcast', broadcast],
  ['POST', '/channel/*/batch', batch],
  ['GET', '/channel/*/messages', messages],
  ['GET', '/channel/*/message/*', (c) => (c.channel.messages.has(c.ids[1]!) ? { status: 200, json: messageOf(c.b, c.channel.messages.get(c.ids[1]!)!) } : problem(404, 'message_not_found'))],
  ['GET', '/channel/*/message/*/responses', responses],
  ['POST', '/channel/*/message/*/response', respond],
  ['GET', '/channel/*/scheduled-messages', (c) => ({ status: 200, json: { Result: [...c.channel.later.values()].sort((a, b) => a.at - b.at).map((l) => `/channel/${c.ids[0]}/scheduled-message/${l.id}`), Pages: {} } })],
  ['GET', '/channel/*/scheduled-message/*', (c) => (c.channel.later.has(c.ids[1]!) ? { status: 200, json: laterOf(c.channel.later.get(c.ids[1]!)!) } : problem(404, 'scheduled_message_not_found'))],
  ['PUT', '/channel/*/scheduled-message/*', reschedule],
  ['DELETE', '/channel/*/scheduled-message/*', (c) => (c.channel.later.delete(c.ids[1]!) ? { status: 204 } : problem(404, 'scheduled_message_not_found'))],
  ['GET', '/channel/*/reconcile', (c) => ({ status: 200, json: { Result: [{ ConsumerID: c.ids[0], Delivered: list(c, 'DELIVERED').length }] } })],
];

export async function route(b: TestBroker, x: Exchange): Promise<Reply> {
  const url = new URL(x.path, 'http://test');
  const parts = url.pathname.split('/').map(decodeURIComponent);
  for (const [method, pattern, run] of table) {
    const form = pattern.split('/');
    if (method !== x.method || form.length !== parts.length || !form.every((p, i) => p === '*' || p === parts[i])) continue;
    const ids = parts.filter((_, i) => form[i] === '*');
    const headers = Object.fromEntries(Object.entries(x.headers).map(([k, v]) => [k.toLowerCase(), v]));
    const body = typeof x.body === 'string' ? x.body : Buffer.from(x.body ?? '').toString('utf8');
    return run({ b, x, headers, query: url.searchParams, body, ids, channel: channelOf(b, ids[0]!) });
  }
  return problem(501, 'not_in_the_test_broker', `The test broker has no ${x.method} ${url.pathname}: try this against a broker.`);
}

function channelOf(b: TestBroker, id: string): Channel {
  let c = b.channels.get(id);
  if (!c) b.channels.set(id, (c = { consumers: new Set(), paused: false, policy: { MaxRetries: '1000', Responses: 'store' }, messages: new Map(), later: new Map() }));
  return c;
}

function putConsumer(c: Call): Reply {
  c.channel.consumers.add(c.ids[1]!);
  for (const [name, value] of new URLSearchParams(c.body)) c.channel.policy[name[0]!.toUpperCase() + name.slice(1)] = value;
  return { status: 200, json: shown(c) };
}

function shown(c: Call): object {
  return {
    ID: c.ids[1], Type: 'pull', Token: 'test', State: c.channel.paused ? 'PAUSED' : 'ACTIVE', Policy: c.channel.policy, Inherited: [],
    Queued: list(c, 'QUEUED').length, InFlight: list(c, 'INFLIGHT').length, DeadLetters: list(c, 'DEAD').length,
  };
}

function list(c: Call, status: string): Stored[] {
  const now = c.b.now();
  return [...c.channel.messages.values()].filter((m) =>
    status === '' ? m.state === 'QUEUED' || m.state === 'INFLIGHT' : status === 'DELAYED' ? m.state === 'QUEUED' && m.due > now : m.state === status);
}

function byJob(c: Call): Stored | undefined {
  return [...c.channel.messages.values()].find((m) => m.jobId === c.ids[2]);
}

function jobOf(b: TestBroker, m: Stored): Record<string, unknown> {
  const at = (ms: number): string => new Date(ms).toISOString();
  return {
    ID: m.jobId, Status: m.state, StatusChangedAt: at(m.changedAt), Attempts: m.attempts, LeasesLost: m.leasesLost, GivenBack: m.givenBack,
    ConsumerID: m.channel, Worker: m.worker, MessageURL: `/channel/${m.channel}/message/${m.id}`,
    ...(m.state === 'QUEUED' && m.due > b.now() ? { NextAttemptAt: at(m.due) } : {}),
    ...(m.reason ? { Reason: m.reason, Detail: m.detail } : {}), ...(m.state === 'DEAD' ? { ReasonCode: m.reason === 'purged' ? 'purged' : 'by_consumer' } : {}),
  };
}

function messageOf(b: TestBroker, m: Stored): object {
  return { ID: m.id, Payload: m.payload, ContentType: m.contentType, Headers: m.headers, Priority: m.priority, ReceivedAt: new Date(m.at).toISOString(), Jobs: [jobOf(b, m)] };
}

function laterOf(l: Later): object {
  return {
    id: l.id, messageId: l.id, payload: l.payload, contentType: l.contentType, priority: l.priority, dispatchSchedule: new Date(l.at).toISOString(),
    status: 'SCHEDULED', recurrence: l.recurrence, occurrence: l.occurrence, headers: l.headers,
  };
}

/** What a publish says of a message, by headers; a line of a batch has the same as members. */
function publish(c: Call, get: (header: string) => string | undefined, payload: string, headers: Record<string, string>): Reply & { id: string } {
  const id = get('X-Broker-Message-ID') || c.b.next();
  const priority = Number(get('X-Broker-Message-Priority') ?? 0);
  if (!(Number.isInteger(priority) && priority >= 0 && priority <= 1023)) return { id, ...problem(400, 'invalid_priority', 'The priority must be an integer from 0 to 1023.') };
  const [delay, time, recurrence] = [get('X-Broker-Delay'), get('X-Broker-Scheduled-For'), get('X-Broker-Recurrence') ?? ''];
  const task = get('X-Broker-Task');
  const made = { id, channel: c.ids[0]!, payload, contentType: get('Content-Type') ?? '', headers: { ...headers, ...(task ? { 'X-Broker-Task': task } : {}) }, priority };
  const had = c.channel.messages.get(id) ?? c.channel.later.get(id);
  const location = (kind: string): string => `/channel/${c.ids[0]}/${kind}/${id}`;
  if (had) {
    const same = had.payload === payload && had.priority === priority;
    return { id, headers: { location: location('message') }, ...problem(409, same ? 'duplicate_message_id' : 'message_id_conflict') };
  }
  const at = time ? Date.parse(time) : c.b.now() + (delay ? msOf(delay) : 0);
  if (!recurrence && at <= c.b.now()) {
    c.b.store(c.channel, made);
    return { id, status: 201, headers: { location: location('message') } };
  }
  c.channel.later.set(id, { ...made, at: recurrence ? firstTime(recurrence, c.b.now(), time ? at : 0) : at, recurrence, occurrence: 1 });
  return { id, status: 201, headers: { location: location('scheduled-message') } };
}

function firstTime(recurrence: string, now: number, from: number): number {
  return Math.max(now, nextTime(recurrence, Math.max(now, from - 1), 1) ?? now);
}

function metadata(c: Call): Record<string, string> {
  const names = (c.headers['x-broker-metadata-headers'] ?? '').split(',').map((n) => n.trim()).filter((n) => n);
  return Object.fromEntries(names.map((n) => [n, c.headers[n.toLowerCase()] ?? '']));
}

function broadcast(c: Call): Reply {
  const { id: _id, ...reply } = publish(c, (h) => c.headers[h.toLowerCase()], c.body, metadata(c));
  return reply;
}

const memberOf: Record<string, string> = {
  'X-Broker-Message-ID': 'MessageID', 'X-Broker-Message-Priority': 'Priority', 'X-Broker-Delay': 'Delay', 'X-Broker-Scheduled-For': 'ScheduledFor',
  'X-Broker-Recurrence': 'Recurrence', 'X-Broker-Task': 'Task', 'Content-Type': 'ContentType',
};

function batch(c: Call): Reply {
  const answers = c.body.split('\n').filter((l) => l).map((text) => {
    const m = JSON.parse(text) as Record<string, unknown>;
    const get = (h: string): string | undefined => (m[memberOf[h]!] === undefined ? undefined : String(m[memberOf[h]!]));
    const payload = m['PayloadBase64'] === undefined ? String(m['Payload'] ?? '') : Buffer.from(String(m['PayloadBase64']), 'base64').toString('utf8');
    const { status, headers, json, id } = publish(c, get, payload, (m['Headers'] ?? {}) as Record<string, string>);
    return JSON.stringify({ Status: status, MessageID: id, Location: headers?.['location'], ...(json as object | undefined) });
  });
  return { status: 200, json: answers.join('\n') + '\n' };
}

function reschedule(c: Call): Reply {
  const l = c.channel.later.get(c.ids[1]!);
  if (!l) return c.channel.messages.has(c.ids[1]!) ? problem(409, 'already_dispatched') : problem(404, 'scheduled_message_not_found');
  const h = c.headers;
  if (c.body) Object.assign(l, { payload: c.body, priority: Number(h['x-broker-message-priority'] ?? l.priority) });
  if (h['x-broker-recurrence']) Object.assign(l, { recurrence: h['x-broker-recurrence'], occurrence: 1, at: firstTime(h['x-broker-recurrence'], c.b.now(), 0) });
  else if (h['x-broker-delay'] !== undefined) Object.assign(l, { at: c.b.now() + msOf(h['x-broker-delay']), recurrence: '' });
  else if (h['x-broker-scheduled-for']) Object.assign(l, { at: Date.parse(h['x-broker-scheduled-for']), recurrence: '' });
  const shownLater = laterOf(l);
  if (l.at <= c.b.now()) {
    c.channel.later.delete(l.id);
    c.b.store(c.channel, l);
  }
  return { status: 200, json: shownLater };
}

function messages(c: Call): Reply {
  const status = c.query.get('status');
  const from = c.query.get('first');
  let all = [...c.channel.messages.values()].filter((m) => !status || m.state === status);
  const start = from ? all.findIndex((m) => m.id === from) : 0;
  all = start > 0 ? all.slice(start) : all;
  return { status: 200, json: { Result: all.map((m) => `/channel/${m.channel}/message/${m.id}`), Pages: {} } };
}

async function claim(c: Call): Promise<Reply> {
  const limit = Number(c.query.get('limit') ?? 100);
  const wait = msOf(c.query.get('wait') ?? '0s');
  const end = performance.now() + wait;
  for (;;) {
    const due = c.channel.paused ? [] : list(c, 'QUEUED').filter((m) => m.due <= c.b.now());
    due.sort((a, b) => b.priority - a.priority || (a.jobId < b.jobId ? -1 : 1));
    const jobs = due.slice(0, limit);
    const left = end - performance.now();
    if (jobs.length > 0 || left <= 0 || c.x.leave?.aborted || c.x.signal?.aborted) {
      const headers = { 'x-broker-backlog': String(due.length - jobs.length) };
      return { status: 200, headers, json: { Result: jobs.map((m) => lease(c, m)), ...(c.channel.paused ? { Why: 'paused' } : {}) } };
    }
    await c.b.change(c.x, left);
  }
}

function lease(c: Call, m: Stored): object {
  Object.assign(m, { state: 'INFLIGHT', lease: c.b.next(), attempts: m.attempts + 1, changedAt: c.b.now(), worker: (c.headers['x-broker-worker'] ?? '').split(';')[0] });
  c.b.changed();
  return {
    ID: m.jobId, Lease: m.lease, Attempt: m.attempts, LeasesLost: m.leasesLost, GivenBack: m.givenBack, Priority: m.priority,
    Deadline: new Date(c.b.now() + 30_000).toISOString(),
    Message: { MessageID: m.id, ProducerID: 'penstock', Payload: m.payload, Headers: m.headers, ContentType: m.contentType },
  };
}

interface Move {
  ID: string;
  Lease?: string;
  NextState: string;
  Delay?: number;
  Failed?: boolean;
  Reason?: string;
  Detail?: string;
  Response?: string;
}

function moves(c: Call): Reply {
  const { Updates } = JSON.parse(c.body) as { Updates: Move[] };
  return { status: 200, json: { Result: Updates.map((u) => ({ ID: u.ID, ...move(c, u) })) } };
}

function move(c: Call, u: Move): { Status: number; code?: string } {
  const m = [...c.channel.messages.values()].find((one) => one.jobId === u.ID);
  if (!m) return { Status: 404, code: 'job_not_found' };
  if (m.state === u.NextState && m.state !== 'QUEUED') return { Status: 202 };
  if (m.state !== 'INFLIGHT' || (u.Lease && u.Lease !== m.lease)) return { Status: 409, code: 'lease_lost' };
  if (u.NextState === 'INFLIGHT') return { Status: 202 };
  if (u.NextState === 'DELIVERED') m.response ??= u.Response;
  Object.assign(m, { state: u.NextState, lease: '', changedAt: c.b.now(), reason: u.Reason ?? '', detail: u.Detail ?? '' });
  if (u.NextState === 'QUEUED') {
    m.due = c.b.now() + (u.Delay ?? 0) * 1000;
    if (!u.Failed) Object.assign(m, { attempts: m.attempts - 1, givenBack: m.givenBack + 1 });
  }
  c.b.changed();
  return { Status: 202 };
}

function moveOne(c: Call): Reply {
  const m = byJob(c);
  if (!m) return problem(404, 'job_not_found');
  if (m.state !== 'QUEUED') return problem(400, 'invalid_transition');
  lease(c, m);
  return { status: 202, headers: { 'x-broker-claimed': 'true', 'x-broker-lease': m.lease }, json: { Claimed: true, Lease: m.lease } };
}

function open(c: Call, m: Stored): void {
  Object.assign(m, { state: 'QUEUED', due: c.b.now(), attempts: 0, leasesLost: 0, givenBack: 0, reason: '', detail: '' });
}

function redriveOne(c: Call): Reply {
  const m = byJob(c);
  if (m?.state !== 'DEAD') return problem(400, 'job_not_dead');
  open(c, m);
  c.b.changed();
  return { status: 202 };
}

function redriveAll(c: Call): Reply {
  const dead = list(c, 'DEAD');
  for (const m of dead) open(c, m);
  c.b.changed();
  return { status: 202, json: { Matched: dead.length } };
}

function purge(c: Call): Reply {
  const queued = list(c, 'QUEUED');
  for (const m of queued) Object.assign(m, { state: 'DEAD', reason: 'purged' });
  return { status: 200, json: { Purged: queued.length } };
}

async function responses(c: Call): Promise<Reply> {
  const end = performance.now() + msOf(c.query.get('wait') ?? '0s');
  for (;;) {
    const m = c.channel.messages.get(c.ids[1]!);
    if (!m) return problem(404, 'message_not_found');
    const left = end - performance.now();
    if (m.response !== undefined || m.state === 'DEAD' || left <= 0 || c.x.signal?.aborted) {
      const state = m.response !== undefined ? 'RESPONSE_RECEIVED_FROM_RECEIVER' : m.state === 'DEAD' ? 'FAILED' : 'ARRIVED';
      const entry = { ConsumerID: m.channel, State: state, Status: 200, Headers: {}, Body: m.response ?? '', BodyEncoding: '', Truncated: false, Reason: m.reason };
      return { status: 200, json: { Result: [entry], Complete: state !== 'ARRIVED' } };
    }
    await c.b.change(c.x, left);
  }
}

function respond(c: Call): Reply {
  const m = c.channel.messages.get(c.ids[1]!);
  if (!m) return problem(404, 'message_not_found');
  if (m.response !== undefined) return problem(409, 'response_exists');
  m.response = c.body;
  c.b.changed();
  return { status: 202 };
}
