package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A pace publishes numbered messages at a fixed rate, whatever becomes of those
// before: an open loop. The message ID is the number, and nothing is repeated.
type pace struct {
	p      *process
	first  int
	client *http.Client
	stop   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	answers []told
}

// startPace begins with the message `first` and sends perSecond of them.
func startPace(p *process, first, perSecond int) *pace {
	l := &pace{p: p, first: first, stop: make(chan struct{}),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}}
	begun := time.Now()
	l.wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-l.stop:
				return
			case <-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))):
				l.wg.Go(func() { l.publish(first + i) })
			}
		}
	})
	return l
}

func (l *pace) publish(n int) {
	a := told{key: fmt.Sprintf("%010d", n), try: 1, sent: time.Now()}
	req, err := http.NewRequest("POST", l.p.base+"/channel/c/broadcast", strings.NewReader(drillBody(n)))
	if err == nil {
		for i := 0; i < len(producerTokens); i += 2 {
			req.Header.Set(producerTokens[i], producerTokens[i+1])
		}
		req.Header.Set("X-Broker-Message-ID", a.key)
		var res *http.Response
		if res, err = l.client.Do(req); err == nil {
			a.status = res.StatusCode
			_ = res.Body.Close()
		}
	}
	a.err, a.took = err, time.Since(a.sent)
	l.mu.Lock()
	l.answers = append(l.answers, a)
	l.mu.Unlock()
}

// count is the number of answers until now.
func (l *pace) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answers)
}

// ackedSince counts the messages sent after a time that were acknowledged.
func (l *pace) ackedSince(at time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.sent.After(at) && a.acked() {
			n++
		}
	}
	return n
}

// finish ends the load and returns all answers.
func (l *pace) finish() []told {
	close(l.stop)
	l.wg.Wait()
	l.client.CloseIdleConnections()
	return l.answers
}

// drillBodyOf is what a message of a pace carries.
func drillBodyOf(a told) string { return "m-" + a.key + drillFiller }

// answered is when the answer came.
func (a told) answered() time.Time { return a.sent.Add(a.took) }

// slowest is the longest that one of the answers took.
func slowest(answers []told) (d time.Duration) {
	for _, a := range answers {
		d = max(d, a.took)
	}
	return d
}

// first is when each body came to the sink the first time.
func (s *sink) first() map[string]time.Time {
	first := map[string]time.Time{}
	for _, r := range s.all() {
		if _, again := first[r.body]; !again {
			first[r.body] = r.at
		}
	}
	return first
}
