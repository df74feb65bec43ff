package redisq

import "time"

// readyBits is the width of the time in the score of a ready job.
const readyBits = 42

// maxDelay bounds delays, so that every due time fits readyBits until 2099.
const maxDelay = 10 * 366 * 24 * time.Hour

// readyScore is the place of a job in the ready set, lowest first:
//
//	bits 42..51  1023 - priority
//	bits  0..41  Unix milliseconds since when the job is ready (until the year 2109)
//
// The largest score is 2^52-1, below the 2^53 up to which a double, and so a
// Redis score and a Lua number, is exact. Equal scores are ordered by the bytes
// of the ID. The scripts compute the same in prelude.lua.
func readyScore(priority int, readyMillis int64) int64 {
	return int64(MaxPriority-priority)<<readyBits + readyMillis
}

// priorityOf is the priority in a ready score.
func priorityOf(score int64) int { return MaxPriority - int(score>>readyBits) }

// readyMillisOf is the ready time in a ready score.
func readyMillisOf(score int64) int64 { return score & (1<<readyBits - 1) }

// millis rounds a duration up to milliseconds, so that nothing is due early,
// and clamps it to 0..maxDelay.
func millis(d time.Duration) int64 {
	d = min(max(d, 0), maxDelay)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
