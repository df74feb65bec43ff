// Package lastuse notes in the store when API tokens were last used, once a minute, so that GET /tokens of every
// broker shows it. A crash loses a minute of it, and nothing else depends on it.
//
// Files: lastuse.go.
package lastuse
