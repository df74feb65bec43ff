package pull

import (
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
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

// A recent remembers what this process did with jobs a moment ago, on the single routes. Losing a
// memory is always correct, only slower.
type recent struct {
	mu    sync.Mutex
	jobs  map[recentJob]memory
	order []recentJob // a ring of at most recentJobs; the next to be forgotten is at next
	next  int
}

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

// leased remembers that this process has granted a lease.
func (r *recent) leased(consumer uint32, id ident.ID, token string) {
	r.put(recentJob{consumer, id}, memory{token: token, at: time.Now()})
}

// delivered remembers that this process has stored the delivery. No later event changes that
// outcome.
func (r *recent) delivered(consumer uint32, id ident.ID) {
	r.put(recentJob{consumer, id}, memory{at: time.Now()})
}

func (r *recent) put(job recentJob, m memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[recentJob]memory{}
	}
	if _, known := r.jobs[job]; !known {
		if len(r.order) < recentJobs {
			r.order = append(r.order, job)
		} else {
			delete(r.jobs, r.order[r.next])
			r.order[r.next] = job
			r.next = (r.next + 1) % recentJobs
		}
	}
	r.jobs[job] = m
}

// of returns what is remembered of a job: that it is delivered, or the token of its lease. Without
// a memory, the token is empty.
func (r *recent) of(consumer uint32, id ident.ID) (delivered bool, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.jobs[recentJob{consumer, id}]
	if !known || time.Since(m.at) > recentFor {
		return false, ""
	}
	return m.token == "", m.token
}
