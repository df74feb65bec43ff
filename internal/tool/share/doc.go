// Package share divides what all users of a broker have together: memory, places, connections.
//
// A Bound counts bytes or places under a Key, which names who uses them: a producer, a consumer, a
// channel, a host, or the address of a client. Its rules hold for each of them alike:
//
//   - A key holds at most as much as is free. One key alone reaches a half of the bound, two reach a
//     third each, n reach 1/(n+1) each, so a newcomer always finds room. (This is the dynamic
//     threshold of Choudhury and Hahne for the buffers of a switch, with a factor of 1.)
//   - Management and small takes have a reserve beside it, with the same rule inside.
//   - What waits for room is served in turn by key, not in the order of arrival.
//   - Under pressure, what rests longest or moves slowest among the permits of the larger keys is
//     ended.
//
// A bound counts what came, not what was announced: callers take as bytes arrive.
//
// Without pressure a take and a give cost a mutex and a look-up each (BenchmarkTake).
package share
