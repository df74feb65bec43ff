// A worker in Node: it takes the jobs that measure.py, or any other program, sends to the queue texts.
import { Worker } from 'penstock/bullmq';

const worker = new Worker('texts', async (job) => {
  if (job.name !== 'measure') throw new Error(`what is ${job.name}?`);
  const [text] = job.args; // and job.kwargs, which JavaScript does not have
  return { characters: [...text].length, shout: job.kwargs.loud ? text.toUpperCase() : text };
}, { concurrency: 4 });

worker.on('ready', () => console.log('ready'));
process.on('SIGTERM', () => worker.close());
process.on('SIGINT', () => worker.close());
