package pull

import (
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/recent"
)

// Workers of one consumer list the same jobs and claim them at the same time. One gets the lease.
// The others ask for a job that is leased or over, and without a memory each costs a read of the
// store.
const (
	// recentFor is how long a memory answers. An acknowledgement that Redis has lost is found behind
	// it, by the next request for the job.
	recentFor = time.Second
	// recentJobs bounds the memories of a process. One is less than 150 bytes.
	recentJobs = 1 << 13
)

// A recentJob names a job of which this process remembers what it did a moment ago, on the single
// routes. Losing a memory is always correct, only slower.
type recentJob struct {
	consumer uint32
	id       ident.ID
}

// A memory is the lease that this process granted, or, without a token, that it stored the
// delivery.
type memory struct {
	token string
	at    time.Time
}

type recentMoves struct {
	*recent.Memory[recentJob, memory]
}

func newRecentMoves() recentMoves { return recentMoves{recent.New[recentJob, memory](recentJobs)} }

// leased remembers that this process has granted a lease.
func (r recentMoves) leased(consumer uint32, id ident.ID, token string) {
	r.Put(recentJob{consumer, id}, memory{token: token, at: time.Now()})
}

// delivered remembers that this process has stored the delivery. No later event changes that
// outcome.
func (r recentMoves) delivered(consumer uint32, id ident.ID) {
	r.Put(recentJob{consumer, id}, memory{at: time.Now()})
}

// of returns what is remembered of a job: that it is delivered, or the token of its lease. Without
// a memory, the token is empty.
func (r recentMoves) of(consumer uint32, id ident.ID) (delivered bool, token string) {
	m, known := r.Get(recentJob{consumer, id})
	if !known || time.Since(m.at) > recentFor {
		return false, ""
	}
	return m.token == "", m.token
}
