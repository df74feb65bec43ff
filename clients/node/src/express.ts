import type { IncomingMessage, ServerResponse } from 'node:http';
import { Receiver, type PushAnswer, type PushHandler, type PushOptions } from './push.js';

export { Gone, Reject, TooManyRequests } from './errors.js';
export { MemoryStore, PushMessage, type PushHandler, type PushOptions, type Store } from './push.js';

/** A push consumer whose middleware answers the deliveries of the broker. */
export interface ExpressConsumer {
  /** Calls the function for each message of the channel, once; the answer follows what it does. */
  on(channel: string, handler: PushHandler): ExpressConsumer;
  /** For `app.post(path, consumer.middleware)`, of Express or of node:http. */
  readonly middleware: (request: IncomingMessage, response: ServerResponse, next?: (error?: unknown) => void) => void;
}

/** Receives signed deliveries: the signature counts for the bytes as they came. */
export function consumer(o: PushOptions): ExpressConsumer {
  const receiver = new Receiver(o);
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await bytesOf(request, receiver);
    send(response, Buffer.isBuffer(body) ? await receiver.answer(request.headers, body) : body);
  };
  const made: ExpressConsumer = {
    on: (channel, handler) => {
      receiver.on(channel, handler);
      return made;
    },
    middleware: (request, response) => {
      answer(request, response).catch(() => response.destroy()); // the client has left
    },
  };
  return made;
}

/** The bytes of a request, as it came, or as a raw parser has kept them. */
async function bytesOf(request: IncomingMessage & { body?: unknown; rawBody?: unknown }, receiver: Receiver): Promise<Buffer | PushAnswer> {
  if (Buffer.isBuffer(request.rawBody)) return request.rawBody;
  if (Buffer.isBuffer(request.body)) return request.body;
  if (request.readableEnded || request.readableDidRead) {
    return receiver.refuse(500, 'a body parser has read the body before: mount this route before express.json()');
  }
  const parts: Buffer[] = [];
  let size = 0;
  // The end of the loop must not destroy the request: its answer goes over the same connection.
  for await (const part of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > receiver.maxBody) return receiver.refuse(413, `the body has more than ${receiver.maxBody} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function send(response: ServerResponse, a: PushAnswer): void {
  // What is left of a body that was not read whole is not awaited.
  response.writeHead(a.status, a.status === 413 ? { ...a.headers, connection: 'close' } : a.headers);
  response.end(a.body);
}
