package redisq

import "strconv"

// DefaultPrefix begins every key; the number is the version of the layout, so
// that brokers with another layout share a Redis without harm.
const DefaultPrefix = "p1:"

// The five keys of a consumer, in the order in which scripts take them.
var keyNames = [...]string{
	"r", // ready   ZSET message ID -> readyScore
	"d", // delayed ZSET message ID -> due, Unix ms
	"x", // leased  ZSET message ID -> deadline of the lease, Unix ms
	"m", // meta    HASH message ID -> meta, see meta.go
	"c", // control HASH e = epoch, f = last fence, sp = highest spilled priority, ss = spills so far, t = when Reclaim last looked or the epoch began
}

// keysOf returns the keys of one consumer. They share the hash tag
// {c<number>}, so that in a cluster a script finds all of them on one node.
func keysOf(prefix string, consumer uint32) []string {
	tag := prefix + "{c" + strconv.FormatUint(uint64(consumer), 10) + "}:"
	keys := make([]string, len(keyNames))
	for i, name := range keyNames {
		keys[i] = tag + name
	}
	return keys
}

// hintChannel is the pub/sub channel of Notify and Subscribe.
func hintChannel(prefix string) string { return prefix + "hint" }
