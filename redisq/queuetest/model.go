package queuetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-broker/penstock/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// model is what the queue of one consumer should do, written as plainly as
// possible. Its time is logical: steps are longTime apart, a short delay or
// lease ends before the next step, a long one never.
type model struct {
	window  int
	now     int64
	spilled int   // highest spilled priority, -1 none
	brought int64 // newest time in the ID of a job that came by another way than a fresh offer
	jobs    map[ident.ID]*modelJob
}

type modelJob struct {
	id       ident.ID
	state    redisq.State
	priority int
	attempts int
	flags    redisq.Flags
	ready    int64 // place inside the priority
	at       int64 // delayed: due; leased: deadline
	token    string
}

const (
	stepTime  = 1_000
	shortTime = 1
	longTime  = 1 << 50
	// begin is later than the time in every ID the test uses.
	begin = 1 << 51
)

func newModel(window int) *model {
	return &model{window: window, now: begin, spilled: -1, jobs: map[ident.ID]*modelJob{}}
}

// logical turns a duration of the test into model time.
func logical(d time.Duration) int64 {
	switch {
	case d <= 0:
		return 0
	case d < never:
		return shortTime
	default:
		return longTime
	}
}

// in lists the jobs of a state, best first.
func (m *model) in(state redisq.State) []*modelJob {
	var out []*modelJob
	for _, j := range m.jobs {
		if j.state == state {
			out = append(out, j)
		}
	}
	slices.SortFunc(out, func(a, b *modelJob) int {
		if state != redisq.Ready {
			return cmp.Or(cmp.Compare(a.at, b.at), a.id.Compare(b.id))
		}
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.ready, b.ready), a.id.Compare(b.id))
	})
	return out
}

func (m *model) enqueue(js []redisq.Job, src redisq.Source) redisq.Enqueued {
	out := redisq.Enqueued{FirstSpilled: -1}
	counted := map[ident.ID]bool{} // spilled in this call
	before := m.brought
	for i, j := range js {
		if src != redisq.Fresh {
			m.bring(j.ID)
		}
		flags := map[redisq.Source]redisq.Flags{
			redisq.Repeated:  redisq.FlagVerify,
			redisq.Recovered: redisq.FlagVerify | redisq.FlagRecovered,
		}[src]
		if src == redisq.Fresh && j.ID.Millis() <= before {
			flags = redisq.FlagVerify
		}
		job := &modelJob{id: j.ID, state: redisq.Ready, priority: j.Priority, attempts: j.Attempts, flags: flags, ready: m.now}
		if src == redisq.Recovered {
			job.ready = j.ID.Millis()
		}
		switch {
		case m.jobs[j.ID] != nil || counted[j.ID]:
			out.Known++
			continue
		case j.Delay > 0:
			job.state, job.at = redisq.Delayed, m.now+logical(j.Delay)
		case !m.admits(j.Priority, src):
			counted[j.ID] = true
			out.Spilled++
			if out.FirstSpilled < 0 {
				out.FirstSpilled = i
			}
			m.spilled = max(m.spilled, j.Priority)
			continue
		}
		m.jobs[j.ID] = job
		out.Added++
	}
	out.SpilledPriority = m.spilled
	return out
}

// offer is enqueue of fresh plain jobs, which are leased where nothing waits or is due.
func (m *model) offer(js []redisq.Job, lease time.Duration) (redisq.Enqueued, []*modelJob) {
	idle := lease > 0 && len(m.in(redisq.Ready)) == 0 && m.spilled < 0 && len(js) <= m.window && len(m.in(redisq.Delayed)) < 4*m.window
	for _, j := range m.in(redisq.Delayed) {
		idle = idle && j.at > m.now
	}
	for _, j := range js {
		idle = idle && j.ID.Millis() > m.brought
	}
	out := m.enqueue(js, redisq.Fresh)
	if !idle || out.Known > 0 {
		return out, nil
	}
	var leased []*modelJob
	for _, j := range js {
		m.lease(m.jobs[j.ID], lease)
		leased = append(leased, m.jobs[j.ID])
	}
	return out, leased
}

func (m *model) bring(id ident.ID) { m.brought = max(m.brought, id.Millis()) }

func (m *model) admits(priority int, src redisq.Source) bool {
	ready := m.in(redisq.Ready)
	bound, ahead := -1, len(ready)-m.window // two windows are the end
	if src == redisq.Recovered {            // a window of what goes before it is
		ahead = 0
		for _, j := range ready {
			if j.priority >= priority {
				ahead++
			}
		}
	} else {
		bound = m.spilled
	}
	if len(ready) < m.window {
		return priority > bound
	}
	worst := ready[len(ready)-1].priority
	return ahead < m.window && priority > max(bound, worst)
}

// promote lets due jobs in.
func (m *model) promote() {
	for _, j := range m.in(redisq.Delayed) {
		if j.at <= m.now {
			j.state, j.ready = redisq.Ready, j.at
		}
	}
}

// visible lists the ready jobs that may be handed out.
func (m *model) visible() []*modelJob {
	return slices.DeleteFunc(m.in(redisq.Ready), func(j *modelJob) bool { return j.priority < m.spilled })
}

func (m *model) claim(n int, lease time.Duration) []*modelJob {
	m.promote()
	if len(m.in(redisq.Delayed)) >= 4*m.window {
		return nil
	}
	out := m.visible()
	out = out[:min(n, len(out))]
	for _, j := range out {
		m.lease(j, lease)
	}
	return out
}

func (m *model) lease(j *modelJob, lease time.Duration) {
	j.state, j.at, j.token = redisq.Leased, m.now+logical(lease), ""
	j.attempts++
}

// claimOne returns the job leased, nil when it was not to be had.
func (m *model) claimOne(job redisq.Job, lease time.Duration, insert bool) (leased *modelJob, before redisq.State) {
	j := m.jobs[job.ID]
	if j == nil {
		if !insert {
			return nil, redisq.Missing
		}
		j = &modelJob{id: job.ID, priority: job.Priority, attempts: job.Attempts, flags: redisq.FlagVerify, ready: m.now}
		m.jobs[job.ID] = j
		m.bring(job.ID)
		m.lease(j, lease)
		return j, redisq.Missing
	}
	before = j.state
	if before == redisq.Leased {
		return nil, before
	}
	if before == redisq.Delayed {
		j.ready = m.now
	}
	m.lease(j, lease)
	return j, before
}

// held tells whether the token is the one of the job's lease.
func (m *model) held(id ident.ID, token string) *modelJob {
	if j := m.jobs[id]; j != nil && j.state == redisq.Leased && j.token == token {
		return j
	}
	return nil
}

// hold gives a lease back and reports whether it is its holder's.
func (m *model) hold(l redisq.Lease, lease time.Duration) bool {
	j := m.jobs[l.ID]
	if j == nil {
		j = &modelJob{id: l.ID, ready: m.now}
		m.jobs[l.ID] = j
		m.bring(l.ID)
	}
	switch {
	case j.state == redisq.Leased:
		return j.token == l.Token
	case j.attempts >= l.Attempt:
		return false
	case j.state == redisq.Delayed:
		j.ready = m.now
	}
	j.priority, j.attempts, j.flags = l.Priority, l.Attempt, j.flags|redisq.FlagVerify
	j.state, j.at, j.token = redisq.Leased, m.now+logical(lease), l.Token
	return true
}

func (m *model) nack(j *modelJob, delay time.Duration) {
	j.state, j.at, j.ready, j.token = redisq.Delayed, m.now+logical(delay), m.now, ""
	if delay <= 0 {
		j.state = redisq.Ready
	}
}

func (m *model) release(j *modelJob) {
	j.state, j.token = redisq.Ready, ""
	j.attempts--
}

func (m *model) reclaim(maxAttempts int) (returned, exhausted []*modelJob) {
	for _, j := range m.in(redisq.Leased) {
		if j.at > m.now {
			continue
		}
		j.flags |= redisq.FlagVerify
		j.token = ""
		if maxAttempts > 0 && j.attempts >= maxAttempts {
			j.at = m.now + longTime
			exhausted = append(exhausted, j)
			continue
		}
		j.state, j.ready = redisq.Ready, m.now
		returned = append(returned, j)
	}
	m.promote()
	return returned, exhausted
}
