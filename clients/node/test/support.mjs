// What the tests share. They need a broker with open management at PENSTOCK_URL.
import { randomBytes } from 'node:crypto';

export const url = process.env.PENSTOCK_URL ?? 'http://127.0.0.1:8080';

/** A name that no other test uses. */
export const unique = (name) => `${name}-${randomBytes(6).toString('hex')}`;

/** Waits until f is true, at most five minutes. */
export async function until(f, what = 'what was awaited') {
  const end = Date.now() + 300_000;
  for (;;) {
    const value = await f();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what} did not come`);
    await new Promise((go) => setTimeout(go, 20));
  }
}
