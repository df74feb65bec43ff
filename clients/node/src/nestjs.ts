/** A module in the shape of @nestjs/bullmq: queues to inject, and classes that process their jobs. */
import { Inject, Injectable, Module, SetMetadata, type DynamicModule, type OnApplicationBootstrap, type OnApplicationShutdown, type Provider } from '@nestjs/common';
import { DiscoveryModule, DiscoveryService, MetadataScanner, Reflector } from '@nestjs/core';
import type { Connection } from './bullmq/connection.js';
import { QueueEvents, type QueueEventsOptions } from './bullmq/events.js';
import type { Job } from './bullmq/job.js';
import type { JobsOptions } from './bullmq/options.js';
import { Queue, type QueueOptions } from './bullmq/queue.js';
import { Worker, type WorkerOptions } from './bullmq/worker.js';
import { ConfigError } from './errors.js';

export { Job, Queue, QueueEvents, Worker, UnrecoverableError, DelayedError, RateLimitError } from './bullmq.js';

export interface BullRootOptions {
  connection?: Connection;
  defaultJobOptions?: JobsOptions;
  prefix?: string;
}

export interface RegisterQueueOptions extends QueueOptions {
  name: string;
}

export interface AsyncOptions<T> {
  imports?: any[];
  inject?: any[];
  useFactory: (...given: any[]) => T | Promise<T>;
}

const rootToken = 'PENSTOCK_ROOT';
const processorKey = 'penstock:processor';
const listenerKey = 'penstock:events';
const workerEventKey = 'penstock:worker_event';
const queueEventKey = 'penstock:queue_event';

/** The token under which a queue is injected. */
export function getQueueToken(name = 'default'): string {
  return `BullQueue_${name}`;
}

export const InjectQueue = (name?: string): PropertyDecorator & ParameterDecorator => Inject(getQueueToken(name));

/** A class that processes the jobs of a queue: it extends WorkerHost, or has a method `process`. */
export function Processor(name: string | { name: string }, options: WorkerOptions = {}): ClassDecorator {
  return SetMetadata(processorKey, { name: typeof name === 'string' ? name : name.name, options });
}

/** A class whose methods with OnQueueEvent hear the events of a queue. */
export function QueueEventsListener(name: string, options: QueueEventsOptions = {}): ClassDecorator {
  return SetMetadata(listenerKey, { name, options });
}

export const OnWorkerEvent = (event: string): MethodDecorator => SetMetadata(workerEventKey, event);
export const OnQueueEvent = (event: string): MethodDecorator => SetMetadata(queueEventKey, event);

export abstract class WorkerHost {
  /** The worker that calls this class, from the start of the application on. */
  protected _worker: Worker | undefined;

  get worker(): Worker {
    if (!this._worker) throw new ConfigError('the worker is made when the application starts');
    return this._worker;
  }

  abstract process(job: Job, token?: string): Promise<any>;
}

export abstract class QueueEventsHost {
  protected _queueEvents: QueueEvents | undefined;

  get queueEvents(): QueueEvents {
    if (!this._queueEvents) throw new ConfigError('the events are made when the application starts');
    return this._queueEvents;
  }
}

interface Marked {
  name: string;
  options: WorkerOptions & QueueEventsOptions;
}

/** Makes workers and listeners when the application starts, and closes them in order when it ends. */
class Explorer implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #made: { close(): Promise<void> }[] = [];

  constructor(readonly discovery: DiscoveryService, readonly scanner: MetadataScanner, readonly reflector: Reflector, readonly root: BullRootOptions) {}

  onApplicationBootstrap(): void {
    for (const { instance, metatype } of this.discovery.getProviders()) {
      if (!instance || !metatype || typeof metatype !== 'function') continue;
      const processor = this.reflector.get<Marked | undefined>(processorKey, metatype);
      const listener = this.reflector.get<Marked | undefined>(listenerKey, metatype);
      if (processor) this.#process(instance as WorkerHost, processor);
      if (listener) this.#listen(instance as QueueEventsHost, listener);
    }
  }

  #process(host: WorkerHost, { name, options }: Marked): void {
    if (typeof host.process !== 'function') throw new ConfigError(`the processor of the queue ${JSON.stringify(name)} has no method process`);
    const worker = new Worker(name, (job, token) => host.process(job, token), { ...options, connection: options.connection ?? this.root.connection });
    (host as unknown as { _worker: Worker })._worker = worker;
    this.#attach(host, worker, workerEventKey);
    this.#made.push(worker);
  }

  #listen(host: QueueEventsHost, { name, options }: Marked): void {
    const events = new QueueEvents(name, { ...options, connection: options.connection ?? this.root.connection });
    (host as unknown as { _queueEvents: QueueEvents })._queueEvents = events;
    this.#attach(host, events, queueEventKey);
    this.#made.push(events);
  }

  #attach(host: object, emitter: { on(event: string, f: (...args: any[]) => void): unknown }, key: string): void {
    const prototype = Object.getPrototypeOf(host) as object;
    for (const method of this.scanner.getAllMethodNames(prototype)) {
      const f = (host as Record<string, (...args: any[]) => unknown>)[method]!;
      const event = this.reflector.get<string | undefined>(key, f);
      if (event) emitter.on(event, (...args) => void f.apply(host, args));
    }
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all(this.#made.map((one) => one.close()));
  }
}

/** Closes the queues of the application. */
class Closer implements OnApplicationShutdown {
  constructor(readonly queues: Queue[]) {}

  async onApplicationShutdown(): Promise<void> {
    await Promise.all(this.queues.map((q) => q.close()));
  }
}

const explorer: Provider = {
  provide: 'PENSTOCK_EXPLORER',
  useFactory: (d: DiscoveryService, s: MetadataScanner, r: Reflector, root: BullRootOptions) => new Explorer(d, s, r, root),
  inject: [DiscoveryService, MetadataScanner, Reflector, rootToken],
};

export class BullModule {
  static forRoot(options: BullRootOptions = {}): DynamicModule {
    return BullModule.#root({ provide: rootToken, useValue: options });
  }

  static forRootAsync(o: AsyncOptions<BullRootOptions>): DynamicModule {
    return BullModule.#root({ provide: rootToken, useFactory: o.useFactory, inject: o.inject ?? [] }, o.imports);
  }

  static #root(provider: Provider, imports: any[] = []): DynamicModule {
    return { module: RootModule, global: true, imports: [DiscoveryModule, ...imports], providers: [provider, explorer], exports: [rootToken] };
  }

  static registerQueue(...queues: RegisterQueueOptions[]): DynamicModule {
    return BullModule.#queues(queues.map(({ name, ...options }) => ({
      provide: getQueueToken(name),
      useFactory: (root: BullRootOptions) => new Queue(name, { ...root, ...options }),
      inject: [rootToken],
    })));
  }

  static registerQueueAsync(...queues: (AsyncOptions<QueueOptions> & { name: string })[]): DynamicModule {
    return BullModule.#queues(queues.map((q) => ({
      provide: getQueueToken(q.name),
      useFactory: async (root: BullRootOptions, ...given: any[]) => new Queue(q.name, { ...root, ...(await q.useFactory(...given)) }),
      inject: [rootToken, ...(q.inject ?? [])],
    })), queues.flatMap((q) => q.imports ?? []));
  }

  static #queues(providers: { provide: string; useFactory: (...given: any[]) => unknown; inject: any[] }[], imports: any[] = []): DynamicModule {
    const tokens = providers.map((p) => p.provide);
    const closer = { provide: `PENSTOCK_CLOSER_${tokens.join()}`, useFactory: (...made: Queue[]) => new Closer(made), inject: tokens };
    return { module: QueueModule, imports, providers: [...providers, closer], exports: tokens };
  }
}

// Decorators by hand: the package is compiled without them.
class RootModule {}
class QueueModule {}
Module({})(RootModule);
Module({})(QueueModule);
Module({})(BullModule);
Injectable()(Explorer);
