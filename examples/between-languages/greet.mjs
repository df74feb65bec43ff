// Adds jobs for a worker in Python and prints their results: greet.mjs NAME...
import { Queue } from 'penstock/bullmq';

const queue = new Queue('greetings');
for (const name of process.argv.slice(2)) {
  const job = await queue.add('greet', { name });
  console.log(await job.waitUntilFinished(undefined, 60_000));
}
await queue.close();
