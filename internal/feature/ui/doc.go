// Package ui is the dashboard: pages for people at /ui, made by the server, which need no JavaScript.
//
// A page reads no store. It asks a Source, which is the API in the same process, for what its routes answer, so a
// page shows what GET shows, with the same words. Looking changes nothing. A Source reads the copy of the
// catalogue and the last sample of all consumers where it can: a page costs at most three statements of the store,
// except where the documentation says otherwise, whatever is stored. A part of a page that cannot be read is
// named on the page; the rest is shown.
//
// Values are text: html/template escapes each, and nothing is marked as safe. The policy of a page
// (Content-Security-Policy) allows the broker's own style sheet and images, forms and requests to the broker, the one
// script that has the nonce of the page, and nothing else. Lists have pages, texts and payloads have a bound, and a
// page has at most mostPage bytes.
//
// Where scripts run, a page that is open is brought up to date (live.go), and has keys and local times
// (assets/keys.js). htmx and two extensions of it are in assets/vendor.
//
// # Actions
//
// An action (action.go) has two steps: a GET that says what would happen, and a POST with a signature over the
// target, the session and what was said, which is asked again when that has changed. It is done by a request to the
// route of the API in the same process (Source.Do), so whoever could not do it there cannot do it here.
//
// # Access
//
// While management is open to a request, so is the dashboard. Otherwise it needs a session: POST /ui/login takes the
// admin token and answers with a cookie that has the end of the session and a signature over it, never the token.
// The key of signatures comes from a secret of the installation and the admin token: every broker of the
// installation takes the session, and another admin token ends it. Nothing is stored for a session, so none can be
// used up; what ends one early is the cookie, which POST /ui/logout removes. Failed logins are bounded for
// each address.
//
// A login by an API token (grant.go) has the ID of the token in its cookie, too. Its scopes decide which pages and
// actions there are, at each request anew, and the session ends with the token.
//
// Somebody who has a portal link (portal.go) needs no session: it opens the pages of one consumer and the actions that
// the token of that consumer allows, and nothing else.
//
// A payload that the setting hides is shown in two steps too (reveal.go), after an entry in the audit log. raw.go has
// it as it was sent, in an answer of no origin. groups.go has the groups of channels.
//
// # Search
//
// A search is for an ID or a name, or by terms (terms.go), which search.go turns into a list of messages or of jobs
// of the API. It says how far it looked.
//
// # Reports of bench
//
// bench.go lists and shows files of a folder that an operator names (reports.go). They may be from anybody: each is
// read with a bound, its sentence is text as any other, and the file itself is in a frame of no origin that runs no
// script.
package ui
