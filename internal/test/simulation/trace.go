package simulation

import "time"

// A trace is what is known of one job.
type trace struct {
	grants   []*grant
	live     *grant // its lease, as far as we know
	handed   []*handed
	claimed  bool          // a pull worker said DELIVERED or DEAD
	storedAt time.Duration // delivered; 0: not
	reopened int
	opened   time.Duration // the last time
	purgedAt time.Duration // 0: not
	purged   bool          // once, whatever came after
}

// A grant is a lease that a life was given.
type grant struct {
	life      int
	token     string
	attempt   int
	asked, at time.Duration
	span      time.Duration
	until     time.Duration // by the clock of Redis
	used      bool
}

// A handed is one time that a job was given to its consumer.
type handed struct {
	gone    bool // answered 410: the attempt is not charged
	life    int
	attempt int
	asked   time.Duration // when its lease was asked for
	at      time.Duration
	ok      bool // the consumer accepted it
	lost    bool // and the broker will not hear of it
	hangs   bool // as neighbours do
}

// trace returns what is known of a job. Call it with mu held.
func (c *checker) trace(k jobKey) *trace {
	t := c.jobs[k]
	if t == nil {
		t = &trace{}
		c.jobs[k] = t
	}
	return t
}

// use finds the lease on which a life gives a job out: the one of that attempt,
// or, as the store may know of more attempts than Redis, the oldest of fewer.
func (t *trace) use(life, attempt int) *grant {
	var found *grant
	for _, g := range t.grants {
		switch {
		case g.life != life || g.used || g.attempt > attempt:
		case g.attempt == attempt:
			g.used = true
			return g
		case found == nil:
			found = g
		}
	}
	if found != nil {
		found.used = true
	}
	return found
}
