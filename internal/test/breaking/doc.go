// Package breaking has the test of make breaking, the list of changes of openapi.json that break clients.
package breaking
