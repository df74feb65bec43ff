package redisq

import (
	"strconv"
	"strings"
)

// DefaultPrefix is the start of every key. Its number is the version of the key layout,
// so brokers with different layouts can share a Redis.
const DefaultPrefix = "p1:"

// The five keys of a consumer, in the order in which scripts take them.
var keyNames = [...]string{
	"r", // ready   ZSET message ID -> readyScore
	"d", // delayed ZSET message ID -> due, Unix ms
	"x", // leased  ZSET message ID -> deadline of the lease, Unix ms
	"m", // meta    HASH message ID -> meta, see meta.go
	"c", // control HASH epoch, fence, spill and times, see lua/prelude.lua
}

// keysOf returns the keys of one consumer. They share the hash tag {c<number>}, so all of
// them are on one node of a Cluster.
func keysOf(prefix string, consumer uint32) []string {
	tag := tagOf(prefix, consumer)
	keys := make([]string, len(keyNames))
	for i, name := range keyNames {
		keys[i] = tag + name
	}
	return keys
}

// tagOf is the begin of every key of a consumer.
func tagOf(prefix string, consumer uint32) string {
	return prefix + "{c" + strconv.FormatUint(uint64(consumer), 10) + "}:"
}

// keysOfReplay returns the keys of a replay, in the same order. They have the hash tag of its
// consumer, so one script can read both.
func keysOfReplay(prefix string, replay, consumer uint32) []string {
	keys := keysOf(prefix, consumer)
	number := "g" + strconv.FormatUint(uint64(replay), 10) + ":"
	for i, name := range keyNames {
		keys[i] = strings.TrimSuffix(keys[i], name) + number + name
	}
	return keys
}

// historyKey has the state of the durable store that its jobs are of.
func historyKey(prefix string) string { return prefix + "history" }

// hintChannel is the pub/sub channel of Notify and Subscribe.
func hintChannel(prefix string) string { return prefix + "hint" }
