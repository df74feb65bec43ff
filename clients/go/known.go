package penstock

import "sync"

// mostKnown and mostKnownBytes are how many jobs with a refused report a worker remembers, and how large
// their responses may be together.
const (
	mostKnown      = 1000
	mostKnownBytes = 8 << 20
)

// knownDone are the jobs that this worker has done and that the broker does not count as done: their reports
// are under way, or came after the lease. If such a job comes again, it is reported and not done again.
type knownDone struct {
	mu      sync.Mutex
	done    map[string]doneJob // by job
	bytes   int                // of the responses of done
	refused []string           // jobs whose report was refused, the oldest first
}

// A doneJob is the number of the attempt that did a job, and its response.
type doneJob struct {
	attempt  int
	response *response
}

// add remembers a job that is done.
func (k *knownDone) add(d *Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = map[string]doneJob{}
	}
	k.forget(d.ID)
	k.done[d.ID] = doneJob{d.Attempt, d.response}
	k.bytes += d.response.bytes()
}

func (k *knownDone) forget(job string) {
	k.bytes -= k.done[job].response.bytes()
	delete(k.done, job)
}

// reported takes the answer to the report of a job that is done.
func (k *knownDone) reported(d *Delivery, taken bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if taken {
		k.forget(d.ID)
		return
	}
	k.refused = append(k.refused, d.ID)
	for len(k.refused) > mostKnown || k.bytes > mostKnownBytes && len(k.refused) > 0 {
		k.forget(k.refused[0])
		k.refused = k.refused[1:]
	}
}

// of returns whether this worker has done the job, and with what response. The attempts of a job that was
// redriven begin again, and a replay is there to do it once more.
func (k *knownDone) of(d *Delivery) (*response, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	job, ok := k.done[d.ID]
	return job.response, ok && d.Attempt > job.attempt && d.replay == ""
}
