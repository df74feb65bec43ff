import { Receiver, type PushHandler, type PushOptions } from './push.js';

export { Gone, Reject, TooManyRequests } from './errors.js';
export { MemoryStore, PushMessage, type PushHandler, type PushOptions, type Store } from './push.js';

export interface FastifyOptions extends PushOptions {
  /** Path of the route; default `/`. */
  path?: string;
  /** The function of each channel. */
  consumers: Record<string, PushHandler>;
}

interface Reply {
  code(status: number): Reply;
  headers(values: Record<string, string>): Reply;
  send(body: string): unknown;
}

/** What of Fastify the plugin uses, in its versions 4 and 5. */
interface Instance {
  removeAllContentTypeParsers(): unknown;
  addContentTypeParser(type: string, options: { parseAs: 'buffer'; bodyLimit: number }, parser: (request: unknown, body: Buffer, done: (error: null, body: Buffer) => void) => void): unknown;
  post(path: string, handler: (request: { headers: Record<string, string | string[] | undefined>; body: unknown }, reply: Reply) => Promise<unknown>): unknown;
}

/** A plugin with one route, which takes bodies as bytes; other routes keep their parsers. */
export const penstock = async (app: any, o: FastifyOptions): Promise<void> => {
  const instance = app as Instance;
  const receiver = new Receiver(o);
  for (const [channel, handler] of Object.entries(o.consumers ?? {})) receiver.on(channel, handler);
  instance.removeAllContentTypeParsers();
  instance.addContentTypeParser('*', { parseAs: 'buffer', bodyLimit: receiver.maxBody }, (_request, body, done) => done(null, body));
  instance.post(o.path ?? '/', async (request, reply) => {
    const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
    const a = await receiver.answer(request.headers, body);
    return reply.code(a.status).headers(a.headers).send(a.body);
  });
};

export default penstock;
