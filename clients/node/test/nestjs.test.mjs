import 'reflect-metadata';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Inject, Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { BullModule, getQueueToken, InjectQueue, OnQueueEvent, OnWorkerEvent, Processor, QueueEventsHost, QueueEventsListener, WorkerHost } from '../dist/esm/nestjs.js';
import { unique, until, url } from './support.mjs';

/** What the TypeScript compiler makes of decorators. */
function method(target, name, decorator) {
  decorator(target.prototype, name, Object.getOwnPropertyDescriptor(target.prototype, name));
}

test('queues are injected, processors work and close with the application', async () => {
  const name = unique('audio');
  const heard = [];

  class Audio extends WorkerHost {
    constructor(greeter) { super(); this.greeter = greeter; }
    async process(job) {
      if (job.data.bad) throw new Error('bad');
      return this.greeter.greet(job.data.file);
    }
    completed(job, result) { heard.push(['completed', job.data.file, result]); }
    failed(job, error) { heard.push(['failed', error.message]); }
  }
  class Greeter { greet(file) { return `played ${file}`; } }
  class Events extends QueueEventsHost {
    done({ returnvalue }) { heard.push(['event', returnvalue]); }
  }
  class Service { constructor(queue) { this.queue = queue; } }
  Injectable()(Greeter);
  Inject(Greeter)(Audio, undefined, 0);
  Processor(name, { concurrency: 2 })(Audio);
  method(Audio, 'completed', OnWorkerEvent('completed'));
  method(Audio, 'failed', OnWorkerEvent('failed'));
  QueueEventsListener(name, { pollInterval: 50 })(Events);
  method(Events, 'done', OnQueueEvent('completed'));
  Injectable()(Service);
  InjectQueue(name)(Service, undefined, 0);

  class App {}
  Module({
    imports: [BullModule.forRoot({ connection: { url } }), BullModule.registerQueue({ name })],
    providers: [Audio, Greeter, Events, Service],
  })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: false });
  await app.get(Events).queueEvents.waitUntilReady();
  const { queue } = app.get(Service);
  assert.equal(app.get(getQueueToken(name)), queue);
  await queue.add('transcode', { file: 'a.wav' });
  await queue.add('transcode', { bad: true });
  await until(() => heard.length === 3);
  assert.deepEqual(heard.sort(), [['completed', 'a.wav', 'played a.wav'], ['event', 'played a.wav'], ['failed', 'bad']]);
  assert.equal(app.get(Audio).worker.isRunning(), true);
  await app.close();
  assert.equal(app.get(Audio).worker.isRunning(), false);
});

test('options come from a factory', async () => {
  const name = unique('async');
  class App {}
  Module({
    imports: [
      BullModule.forRootAsync({ useFactory: async () => ({ connection: { url } }) }),
      BullModule.registerQueueAsync({ name, useFactory: async () => ({ defaultJobOptions: { attempts: 3 } }) }),
    ],
  })(App);
  const app = await NestFactory.createApplicationContext(App, { logger: false });
  const queue = app.get(getQueueToken(name), { strict: false });
  assert.equal((await queue.add('x', {})).opts.attempts, 3);
  await app.close();
});
