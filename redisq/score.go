package redisq

import "time"

// readyBits is the width of the time in the score of a ready job.
const readyBits = 42

// retryBit of a score says that the job has attempts.
const retryBit = 1 << 52

// maxDelay bounds delays. Until 2099 every due time then fits into readyBits.
const maxDelay = 10 * 366 * 24 * time.Hour

// readyScore returns the score of a job in the ready set. The lowest score is first:
//
//	bit  52      1 for a job with attempts: first attempts come before retries
//	bits 42..51  1023 - priority
//	bits  0..41  time since which the job is ready, Unix ms (until the year 2109): that of its
//	             message, or the end of its last wait or lease
//
// The largest score is 2^53-1. Redis scores and Lua numbers are doubles, which are exact
// up to 2^53. Equal scores are ordered by the bytes of the ID. prelude.lua computes the
// same score.
func readyScore(priority, attempts int, readyMillis int64) int64 {
	score := int64(MaxPriority-priority)<<readyBits + readyMillis
	if attempts > 0 {
		score |= retryBit
	}
	return score
}

// priorityOf returns the priority in a ready score.
func priorityOf(score int64) int { return MaxPriority - int(score&^retryBit>>readyBits) }

// readyMillisOf returns the ready time in a ready score.
func readyMillisOf(score int64) int64 { return score & (1<<readyBits - 1) }

// millis rounds a duration up to milliseconds, so that no job is due early, and clamps it
// to 0..maxDelay.
func millis(d time.Duration) int64 {
	d = min(max(d, 0), maxDelay)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
