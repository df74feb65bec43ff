import { EventEmitter } from 'node:events';

/**
 * What the workers of this process tell its listeners: the broker keeps no progress and no logs of
 * jobs. It is shared by both builds of the package.
 */
const key = Symbol.for('penstock.bullmq.bus');
const shared = globalThis as { [key]?: Bus };

/** Progress and logs of so many jobs are remembered. */
const mostJobs = 10_000;

interface Told {
  progress: unknown;
  logs: string[];
}

export class Bus extends EventEmitter {
  readonly #told = new Map<string, Told>();

  of(queue: string, id: string): Told | undefined {
    return this.#told.get(`${queue}/${id}`);
  }

  tell(queue: string, id: string): Told {
    const name = `${queue}/${id}`;
    let told = this.#told.get(name);
    if (!told) {
      told = { progress: 0, logs: [] };
      this.#told.set(name, told);
      if (this.#told.size > mostJobs) this.#told.delete(this.#told.keys().next().value as string);
    }
    return told;
  }
}

export const bus: Bus = (shared[key] ??= new Bus().setMaxListeners(0) as Bus);
