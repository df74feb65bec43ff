package redisq

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts, one per verb. The header of each file is its contract.
var (
	offerScript         = load("prelude", "brought", "grant", "offer")
	enqueueScript       = load("prelude", "brought", "enqueue")
	claimScript         = load("prelude", "promote", "grant", "claim")
	claimEachScript     = load("prelude", "brought", "grant", "claim_each")
	regrantScript       = load("prelude", "grant", "refund", "regrant")
	holdScript          = load("prelude", "hold")
	extendScript        = load("prelude", "leased", "extend")
	restoreLeasesScript = load("prelude", "brought", "restore_leases")
	ackScript           = load("prelude", "ack")
	ackLeasesScript     = load("prelude", "leased", "ack_leases")
	nackScript          = load("prelude", "leased", "nack")
	releaseScript       = load("prelude", "leased", "refund", "release")
	parkScript          = load("prelude", "leased", "refund", "park")
	unparkScript        = load("prelude", "brought", "unpark")
	hastenScript        = load("prelude", "hasten")
	reclaimScript       = load("prelude", "promote", "reclaim")
	peekScript          = load("prelude", "promote", "grant", "peek")
	probeScript         = load("prelude", "probe")
	statsScript         = load("prelude", "stats")
	outlookScript       = load("prelude", "grant", "outlook")
	spilledScript       = load("prelude", "spilled")
	completeScript      = load("prelude", "complete")
	renewScript         = load("prelude", "renew")
	rebuildScript       = load("rebuild")
	takeTokenScript     = load("take_token")
	keepTokenScript     = load("keep_token")
	publishRateScript   = load("publish_rate")
)

// A script is a Lua text with its digest.
type script struct {
	name, text, hash string
}

// code removes comment lines, because the embedded server parses a script at each call.
func code(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "--") {
			b.WriteString(t)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// load joins Lua files to one script. Redis has no modules, so shared code comes first in
// each script.
func load(parts ...string) *script {
	var text string
	for _, part := range parts {
		b, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the file set is fixed when the program is built
		}
		text += code(string(b))
	}
	return &script{name: parts[len(parts)-1], text: text, hash: redis.NewScript(text).Hash()}
}
