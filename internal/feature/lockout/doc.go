// Package lockout limits how often an address may send a wrong token.
//
// An address (of IPv6 a /64, which one client has) that has sent so many wrong tokens within a minute is limited for
// a minute. While it is, no token of management is looked at, right or wrong, and every wrong token of a
// publish, a claim or an access key is answered as the limit is. Right ones of these go on: many clients may share
// one address, and those with a right token must not pay for one with a wrong one. What can be guessed at all is
// a token that a person chose, and that is the admin's first of all.
//
// A request of management without any token is no failure; a publish or a claim whose token is missing is.
//
// The memory is bounded: of so many addresses the limiter forgets some, those that are not limited first.
//
// Files: lockout.go.
package lockout
