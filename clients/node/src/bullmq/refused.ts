import { UnsupportedError } from './errors.js';

/** FlowProducer is refused by name. */
export class FlowProducer {
  constructor() {
    throw new UnsupportedError('FlowProducer', 'a job has no parents and children; publish the next job at the end of the first one');
  }
}

/** QueueEventsProducer is refused by name. */
export class QueueEventsProducer {
  constructor() {
    throw new UnsupportedError('QueueEventsProducer', 'the events of a queue are those of its jobs');
  }
}
