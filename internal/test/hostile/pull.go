package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// claim leases due jobs, and waits for the first one.
func (b *Broker) claim(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	seconds, err := strconv.Atoi(q.Get("timeout"))
	wait, wrong := time.ParseDuration(q.Get("wait"))
	if n, whole := strconv.Atoi(q.Get("wait")); whole == nil {
		wait, wrong = time.Duration(n)*time.Second, nil
	}
	if limit < 1 || err != nil || seconds < 1 || wrong != nil {
		b.mu.Lock()
		b.violation("claim?%s has no limit, wait and timeout", r.URL.RawQuery)
		b.mu.Unlock()
		refuse(w, 400, "invalid_limit")
		return
	}
	for end := time.Now().Add(wait); ; {
		b.mu.Lock()
		now := time.Now()
		b.expire(now)
		got, next := b.lease(now, limit, time.Duration(seconds)*time.Second)
		changed := b.changed
		b.mu.Unlock()
		if len(got) > 0 || !now.Before(end) {
			b.answer(w, 200, map[string]any{"Result": got})
			return
		}
		select {
		case <-changed:
		case <-time.After(min(end.Sub(now), next)):
		case <-r.Context().Done():
			return
		case <-b.down:
			return
		}
	}
}

// lease leases up to limit jobs. next is when another one may be due. b.mu is held.
func (b *Broker) lease(now time.Time, limit int, length time.Duration) (got []map[string]any, next time.Duration) {
	got, next = []map[string]any{}, 100*time.Millisecond
	for _, j := range b.jobs {
		if j.State != "QUEUED" || now.Before(j.due) || len(got) == limit {
			continue
		}
		b.numbers++
		j.State, j.lease, j.until = "INFLIGHT", fmt.Sprintf("lease.%d", b.numbers), now.Add(length)
		j.Attempts++
		entry := map[string]any{"ID": j.ID, "Lease": j.lease, "Attempt": j.Attempts, "Priority": 0,
			"Deadline": now.Add(length + b.Clock).UTC().Format(time.RFC3339Nano),
			"Message": map[string]any{"MessageID": j.MessageID, "ProducerID": "penstock", "Payload": j.Payload,
				"Headers": map[string]string{"X-Broker-Task": j.Task}, "ContentType": "application/json"}}
		if b.Strange {
			entry["Stranger"], entry["LeasesLost"] = []string{"a"}, j.LeasesLost
		}
		got = append(got, entry)
	}
	if len(got) > 0 {
		b.wake()
	}
	return got, next
}

// move takes a report.
func (b *Broker) move(w http.ResponseWriter, body []byte) {
	var in struct{ Updates []Move }
	if json.Unmarshal(body, &in) != nil || in.Updates == nil {
		refuse(w, 400, "invalid_body")
		return
	}
	if len(in.Updates) > 500 {
		refuse(w, 400, "too_many_updates")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(time.Now())
	results := []map[string]any{}
	for i := range in.Updates {
		m := &in.Updates[i]
		m.Status, m.Code = b.moved(m)
		result := map[string]any{"ID": m.ID, "Status": m.Status}
		if m.Code != "" {
			result["code"] = m.Code
		}
		if b.Strange {
			result["Stranger"] = 1
		}
		results = append(results, result)
		b.taken(*m, string(body))
	}
	b.wake()
	b.answer(w, 200, map[string]any{"Result": results})
}

// taken notes what became of an entry of a report. b.mu is held.
func (b *Broker) taken(m Move, body string) {
	for i := len(b.requests) - 1; i >= 0; i-- {
		if r := &b.requests[i]; r.Door == "jobs" && r.Body == body {
			for n := range r.Moves {
				if r.Moves[n].ID == m.ID && r.Moves[n].Status == 0 {
					r.Moves[n].Status, r.Moves[n].Code = m.Status, m.Code
					return
				}
			}
		}
	}
}

// moved moves one job. b.mu is held.
func (b *Broker) moved(m *Move) (int, string) {
	j := b.job(m.ID)
	switch {
	case j == nil:
		return 404, "job_not_found"
	case m.Lease == "":
		b.violation("job %s is moved without its lease", m.ID)
		return 400, "lease_required"
	case j.State == m.NextState && (j.State == "DELIVERED" || j.State == "DEAD") && j.lease != "another.1":
		return 202, ""
	case j.State != "INFLIGHT" || j.lease != m.Lease:
		return 409, "lease_lost"
	}
	now := time.Now()
	switch m.NextState {
	case "DELIVERED", "DEAD":
		j.State = m.NextState
	case "QUEUED":
		j.State, j.lease, j.due = "QUEUED", "", now.Add(time.Duration(m.Delay)*time.Second)
		if m.Failed && m.Delay == 0 {
			j.due = now.Add(time.Hour) // the backoff of the consumer
		}
		if !m.Failed {
			j.Attempts--
			j.GivenBack++
		}
	case "INFLIGHT":
		if m.Timeout < 1 {
			b.violation("job %s is renewed without Timeout", m.ID)
		}
		j.until = now.Add(time.Duration(m.Timeout+m.IncrementalTimeout) * time.Second)
	default:
		return 400, "invalid_next_state"
	}
	return 202, ""
}
