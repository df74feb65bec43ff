// Package shape holds the tests that keep production code in small pieces, and keep tests and
// load programs out of the broker. It has no other content.
package shape
