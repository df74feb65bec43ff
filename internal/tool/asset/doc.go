// Package asset answers with files that are the same as long as the broker runs: in gzip to clients that take it, and
// with 304 to those that have the file.
package asset
