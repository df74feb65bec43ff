// Package exchange carries the responses of consumers back to the producers of messages.
//
// The store keeps an exchange from the outcome of the job on: the transaction of the outcome inserts
// its row (durable.Exchange). Accepted and Awaited make the rows whose result comes later. A Worker
// does what is due: it polls results, publishes replies, ends exchanges at their deadline and drops
// responses by their age. The state of the row says what, so a broker that dies between two steps
// leaves a row that is due, and another broker goes on.
//
//	step                                    a crash after it leaves
//	outcome and row stored                  a row that is due
//	result polled, not stored               a row that is due: the result is polled again
//	reply published, row not moved          a reply whose message ID refuses the second one
//	reply delivered, outcome not stored     a job whose lease ends: the reply is sent twice
//
// A Board holds the clients that wait for responses. Nothing is asked for a single client: one loop
// asks for all messages that are waited for, and is woken by the outcomes of this broker.
package exchange
