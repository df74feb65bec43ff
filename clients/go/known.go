package penstock

import "sync"

// mostKnown is how many jobs with a refused report a worker remembers.
const mostKnown = 1000

// knownDone are the jobs that this worker has done and that the broker does not count as done: their reports
// are under way, or came after the lease. If such a job comes again, it is reported and not done again.
type knownDone struct {
	mu       sync.Mutex
	attempts map[string]int // number of the attempt that did it, by job
	refused  []string       // jobs whose report was refused, the oldest first
}

// add remembers a job that is done.
func (k *knownDone) add(d *Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.attempts == nil {
		k.attempts = map[string]int{}
	}
	k.attempts[d.ID] = d.Attempt
}

// reported takes the answer to the report of a job that is done.
func (k *knownDone) reported(d *Delivery, taken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if taken {
		delete(k.attempts, d.ID)
		return
	}
	k.refused = append(k.refused, d.ID)
	if len(k.refused) > mostKnown {
		delete(k.attempts, k.refused[0])
		k.refused = k.refused[1:]
	}
}

// has reports whether this worker has done the job. The attempts of a job that was redriven begin again, and a
// replay is there to do it once more.
func (k *knownDone) has(d *Delivery) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.attempts[d.ID]
	return ok && d.Attempt > n && d.replay == ""
}
