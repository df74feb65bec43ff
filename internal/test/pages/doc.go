// Package pages holds the tests that keep the documentation equal to the code:
// routes, error codes, tables and links. It has no other content.
package pages
