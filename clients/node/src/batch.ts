import { pause, sleep, transient } from './backoff.js';
import { ApiError, ConnectionError, PenstockError } from './errors.js';
import { line, type Message, type Published } from './message.js';

/** The result of one message of a batch: published, or with an error. */
export interface BatchResult extends Published {
  error: PenstockError | undefined;
}

/** Lines and bytes of one request at most. */
const maxLines = 1000;
const maxBytes = 4 << 20;

interface Batching {
  tries: number;
  signal: AbortSignal;
  send(lines: string): Promise<string>;
  /** Told of each result once, as soon as it is final. */
  settled?: ((at: number, r: BatchResult) => void) | undefined;
}

interface Waiting {
  at: number;
  id: string;
  line: string;
}

/**
 * Sends messages as batches, one after the other. A line without an answer, or with an answer that may
 * pass, is sent again with its message ID.
 */
export async function batches(messages: readonly (Message & { messageId: string })[], o: Batching): Promise<BatchResult[]> {
  const results: BatchResult[] = new Array<BatchResult>(messages.length);
  let part: Waiting[] = [];
  let bytes = 0;
  const flush = async (): Promise<void> => {
    if (part.length > 0) await batch(part, results, o);
    [part, bytes] = [[], 0];
  };
  const lines = messages.map((m, at) => ({ at, id: m.messageId, line: line(m) })); // all are checked before any is sent
  for (const w of lines) {
    if (part.length >= maxLines || bytes + w.line.length > maxBytes) await flush();
    part.push(w);
    bytes += w.line.length + 1;
  }
  await flush();
  return results;
}

async function batch(all: Waiting[], results: BatchResult[], o: Batching): Promise<void> {
  const end = Date.now() + 30_000;
  let open = all;
  for (let n = 0; open.length > 0; n++) {
    let error: PenstockError = new ConnectionError('the broker did not answer this line', 'bad_answer');
    try {
      open = settle(open, results, await o.send(open.map((w) => w.line).join('\n') + '\n'), o);
      const kept = results[open[0]?.at ?? -1]?.error;
      if (kept) error = kept;
    } catch (e) {
      error = e instanceof PenstockError ? e : new PenstockError(String(e));
    }
    if (open.length === 0) return;
    const wait = pause(error, n);
    if (!transient(error) || n + 1 >= o.tries || Date.now() + wait > end || o.signal.aborted) {
      for (const w of open) {
        const r = (results[w.at] ??= failed(w.id, error));
        o.settled?.(w.at, r);
      }
      return;
    }
    await sleep(wait, o.signal);
  }
}

/** Takes the answers to the lines, and returns the lines that are sent again. */
function settle(open: Waiting[], results: BatchResult[], answer: string, o: Batching): Waiting[] {
  const lines = answer.split('\n').filter((l) => l !== '');
  const rest: Waiting[] = [];
  open.forEach((w, i) => {
    const r = result(w, lines[i]);
    delete results[w.at];
    if (!r) return void rest.push(w);
    results[w.at] = r;
    if (r.error && transient(r.error)) rest.push(w);
    else o.settled?.(w.at, r);
  });
  return rest;
}

function result(w: Waiting, answer: string | undefined): BatchResult | undefined {
  let json: Record<string, unknown>;
  try {
    json = JSON.parse(answer ?? '') as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const status = json?.['Status'];
  const code = json?.['code'];
  if (typeof status !== 'number' || code === 'answers_unread') return undefined;
  if (typeof json['MessageID'] === 'string' && json['MessageID'] !== w.id) return undefined; // no answer to this line
  if (status < 300 || code === 'duplicate_message_id') {
    return { messageId: w.id, location: String(json['Location'] ?? ''), status, duplicate: status === 409 || status === 200, error: undefined };
  }
  const after = typeof json['RetryAfter'] === 'number' ? json['RetryAfter'] : undefined;
  return failed(w.id, new ApiError('a line of the batch', status, String(code ?? `status_${status}`), String(json['detail'] ?? ''), '', after), status);
}

function failed(id: string, error: PenstockError, status = error.status): BatchResult {
  return { messageId: id, location: '', status, duplicate: false, error };
}
