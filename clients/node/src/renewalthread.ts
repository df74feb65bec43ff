/* eslint-disable */
/**
 * renewalThread is what the renewal thread runs. It is sent as text, so it refers to nothing outside of
 * itself, and runs as a CommonJS script in whatever way the program was bundled.
 */
export function renewalThread(require: (name: string) => any): void {
  const { parentPort, workerData: o } = require('node:worker_threads');
  const base = new URL(o.url);
  const http = require(base.protocol === 'https:' ? 'node:https' : 'node:http');
  const agent = new http.Agent({ keepAlive: true, maxSockets: 2, timeout: Math.max(o.lease, 5000), autoSelectFamily: true });
  type Held = { lease: string; due: number; end: number; busy: boolean; fails: number };
  const held = new Map<string, Held>();
  let headers: Record<string, string> | undefined;
  let timer: any;

  // Monotonic ms: a clock that is set back or forth changes nothing. The main thread tells its own
  // reading of the same clock.
  const now = (): number => Number(process.hrtime.bigint() / 1000000n);

  parentPort.on('message', (m: any) => {
    if (m.do === 'add') held.set(m.id, { lease: m.lease, due: m.since + o.every, end: m.since + o.lease, busy: false, fails: 0 });
    else if (m.do === 'remove' && held.get(m.id)?.lease === m.lease) held.delete(m.id);
    else if (m.do === 'headers') headers = m.headers;
    plan();
  });

  parentPort.postMessage({ ready: true });

  function plan(): void {
    clearTimeout(timer);
    let next = Infinity;
    for (const h of held.values()) next = Math.min(next, h.busy ? h.end : Math.min(h.due, h.end));
    if (next < Infinity) timer = setTimeout(turn, Math.max(headers ? 1 : 20, next - now()));
  }

  function turn(): void {
    const at = now();
    const due: [string, Held][] = [];
    for (const [id, h] of held) {
      if (at >= h.end) lose(id, h, 'it ended before the broker could be reached');
      // Those that are due soon go along.
      else if (headers && !h.busy && at + o.every / 8 >= h.due && due.length < 500) due.push([id, h]);
    }
    if (due.length > 0 && due.some(([, h]) => at >= h.due)) extend(due, at);
    plan();
  }

  function lose(id: string, h: Held, why: string): void {
    if (held.get(id) !== h) return;
    held.delete(id);
    parentPort.postMessage({ lost: id, lease: h.lease, why });
  }

  function extend(jobs: [string, Held][], at: number): void {
    for (const [, h] of jobs) h.busy = true;
    const body = Buffer.from(JSON.stringify({ Updates: jobs.map(([id, h]) => ({ ID: id, Lease: h.lease, NextState: 'INFLIGHT', Timeout: o.lease / 1000 })) }));
    send(body, (status, text) => {
      let list: any[] = [];
      try {
        if (status === 200) list = JSON.parse(text!).Result;
        if (!Array.isArray(list)) list = [];
      } catch {
        list = [];
      }
      if (status === 401 || status === 403 || status === 404) parentPort.postMessage({ refused: true });
      jobs.forEach(([id, h], i) => {
        const r = list[i];
        h.busy = false;
        if (r && r.ID === id && r.Status === 202) {
          h.end = at + o.lease;
          h.due = at + o.every;
          h.fails = 0;
        } else if (r && r.ID === id && (r.code === 'lease_lost' || r.Status === 404 || r.code === 'invalid_transition')) {
          lose(id, h, 'the broker has given the job to another worker');
        } else {
          h.due = now() + 50 + Math.random() * Math.min(o.every / 2, 200 * 2 ** h.fails++);
        }
      });
      plan();
    });
  }

  function send(body: any, done: (status: number, text?: string) => void): void {
    let over = false;
    const end = (status: number, text?: string): void => {
      if (over) return;
      over = true;
      clearTimeout(limit);
      if (!status) request.destroy();
      done(status, text);
    };
    const request = http.request(
      {
        method: 'POST', protocol: base.protocol, hostname: base.hostname.replace(/^\[|\]$/g, ''), port: base.port,
        path: base.pathname.replace(/\/$/, '') + o.path, agent, headers: { ...headers, 'Content-Length': String(body.length) },
      },
      (response: any) => {
        const parts: any[] = [];
        let size = 0;
        response.on('data', (part: any) => {
          size += part.length;
          if (size > 1 << 20) end(0);
          else parts.push(part);
        });
        response.on('end', () => end(response.complete ? response.statusCode : 0, Buffer.concat(parts).toString()));
        response.on('error', () => end(0));
        response.on('close', () => end(0));
      },
    );
    const limit = setTimeout(() => end(0), o.timeout);
    request.on('error', () => end(0));
    request.end(body);
  }
}
