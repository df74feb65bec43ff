// Package principal is what a client certificate stands for: the scopes that BROKER_TLS_PRINCIPALS maps its
// subject to.
//
// An entry is SUBJECT=SCOPES, entries are separated by semicolons or lines. SUBJECT is a distinguished name as
// RFC 4514 writes it, SCOPES are words of package scope between commas. A certificate is that of the first entry
// whose attributes its subject all has.
//
// Each entry gets an API token that only this process knows, made at the start and stored nowhere. A request
// without Authorization on a connection whose certificate has an entry is given that token as its bearer token,
// before anything else looks at the request (Map.Certify). So a certificate is checked where API tokens are, and in
// no other way: on each route, on the data plane, and again in the midst of a long request. The certificate is
// that of the TLS connection; no header says one.
//
// Files: principal.go (entries and requests), subject.go (distinguished names).
package principal
