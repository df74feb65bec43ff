// Publishes a message and claims its job, with types that openapi-typescript made of openapi.json.
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

const { GET, PUT, POST } = createClient<paths>({ baseUrl: process.argv[2]! });

/** The data of an answer; a problem has the members that the document promises. */
function done<T>(answer: { data?: T; error?: components['schemas']['Problem']; response: Response }): T {
  const { error } = answer;
  if (error) throw new Error(`${error.status} ${error.code}: ${error.type}`);
  return answer.data as T;
}

const channel = 'made-of-openapi';
const consumer = 'worker';
const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
const bodySerializer = (body: object | undefined) => new URLSearchParams(body as Record<string, string>).toString();

done(await PUT('/producer/{producer}', { params: { path: { producer: 'maker' } }, body: { Token: 'p' } }));
done(await PUT('/channel/{channel}', { params: { path: { channel } }, body: { Token: 'c' } }));
const made = done(await PUT('/channel/{channel}/consumer/{consumer}', {
  params: { path: { channel, consumer } }, headers: form, bodySerializer, body: { type: 'pull', token: 'k' },
}));
const kind: string = made.Type;

const message = { 'X-Broker-Message-ID': 'order-1', 'X-Broker-Message-Priority': 7, 'X-Broker-Producer-ID': 'maker' };
const tokens = { 'X-Broker-Channel-Token': 'c', 'X-Broker-Producer-Token': 'p', 'X-Broker-Consumer-Token': 'k' };
const post = () => POST('/channel/{channel}/broadcast', { params: { path: { channel }, header: message }, headers: tokens, body: { order: 1 } });
const { response } = await post();
const { error } = await post();

const { Result } = done(await POST('/channel/{channel}/consumer/{consumer}/claim', {
  params: { path: { channel, consumer } }, headers: tokens, body: { Limit: 10, Wait: '20s', Timeout: 60 },
}));
const [job] = Result;
if (!job) throw new Error('there is no job');
done(await POST('/channel/{channel}/consumer/{consumer}/job/{job}', {
  params: { path: { channel, consumer, job: job.ID }, header: { 'X-Broker-Lease': job.Lease } }, headers: tokens,
  body: { NextState: 'DELIVERED' },
}));
const stored = done(await GET('/channel/{channel}/message/{message}', { params: { path: { channel, message: 'order-1' } } }));

console.log(JSON.stringify([kind, response.status, error?.code, job.Priority, job.Message.Payload, stored.Jobs?.map((j) => j.Status)]));
