/** A broker in memory with virtual time, for the tests of programs. */
export { TestBroker } from './testing/broker.js';
