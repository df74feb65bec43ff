import { EventEmitter } from 'node:events';

/**
 * Emitter is an EventEmitter whose listeners harm nothing but themselves, as BullMQ's is: what one
 * throws is emitted as `error`, and written where nobody listens to that.
 */
export class Emitter extends EventEmitter {
  override emit(event: string | symbol, ...given: any[]): boolean {
    try {
      return super.emit(event, ...given);
    } catch (e) {
      if (event !== 'error' && this.listenerCount('error') > 0) return this.emit('error', e);
      console.error(`penstock: a listener of ${String(event)}: ${e instanceof Error ? e.message : String(e)}`);
      return false;
    }
  }
}
