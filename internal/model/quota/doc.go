// Package quota bounds what one producer may store.
//
// A message, a schedule and a chunk of a bulk take their bytes before they go to the store. Where that
// is more than the producer's bound, they are refused. Nothing is given back by the way in: what is
// stored ends when retention, a deletion or the end of a schedule or bulk removes it.
//
// The store has the sums (durable.Stored). Each broker counts the messages of its channels every
// second, behind the IDs that may still be committed, and reads the sums of all. What it stored itself
// beyond them it knows exactly; what other brokers stored in the last seconds it does not know. So the
// bound may be exceeded by that much, and a restart forgets no more. A producer without a bound costs
// one look at a map, and nothing is counted while no producer has one. The first bound of an
// installation begins with what has been stored before, which takes a while where that is much.
package quota
