import { EventEmitter } from 'node:events';

/**
 * What the workers of this process tell its listeners: the broker keeps no progress and no logs of
 * jobs. It is shared by both builds of the package.
 */
const key = Symbol.for('penstock.bullmq.bus');
const shared = globalThis as { [key]?: Bus };

/** Progress and logs of so many jobs are remembered, and so many characters of logs. */
const mostJobs = 10_000;
const mostChars = 16 << 20;
/** A line of a log has at most so many characters. */
const mostLine = 64 << 10;

interface Told {
  progress: unknown;
  logs: string[];
}

export class Bus extends EventEmitter {
  readonly #told = new Map<string, Told>();
  #chars = 0;

  of(queue: string, id: string): Told | undefined {
    return this.#told.get(`${queue}/${id}`);
  }

  tell(queue: string, id: string): Told {
    const name = `${queue}/${id}`;
    let told = this.#told.get(name);
    if (!told) {
      told = { progress: 0, logs: [] };
      this.#told.set(name, told);
      if (this.#told.size > mostJobs) this.#forget();
    }
    return told;
  }

  /** Adds a line to the log of a job, which keeps its last ones, and returns how many it has. */
  log(queue: string, id: string, row: string, keep: number): number {
    const told = this.tell(queue, id);
    const line = row.slice(0, mostLine);
    told.logs.push(line);
    this.#chars += line.length;
    while (told.logs.length > Math.max(0, keep)) this.#chars -= told.logs.shift()!.length;
    while (this.#chars > mostChars && this.#told.size > 1) this.#forget();
    return told.logs.length;
  }

  clear(queue: string, id: string): void {
    const told = this.tell(queue, id);
    for (const line of told.logs.splice(0)) this.#chars -= line.length;
  }

  /** Forgets what was told of the oldest job. */
  #forget(): void {
    const [name, told] = this.#told.entries().next().value as [string, Told];
    for (const line of told.logs) this.#chars -= line.length;
    this.#told.delete(name);
  }
}

export const bus: Bus = (shared[key] ??= new Bus().setMaxListeners(0) as Bus);
