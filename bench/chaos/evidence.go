//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

// Evidence is the input of the checker: the journals of the clients, the rows of the store, the
// dead-letter lists of the API, and the faults.
type Evidence struct {
	Plan     *plan
	Sent     map[int64]*Sent
	Arrivals []Arrival
	Stored   []Stored
	Jobs     []Outcomes // by consumer
	Faults   []Fault
	Notes    []Note
	Exits    []Exit // of broker processes
	Deaths   []Death
	Rests    []Rest // of the brokers
	Pauses   []Pause
	// Askew has the consumers of which the books of the broker do not balance.
	Askew     []string
	Replies   []Reply
	Exchanges map[exchangeKey]Exchange `json:"-"`
	Copies    []Copy
	Replays   []Replay
	Attack    Attack
	Upgrade   Upgrade
	// InRedis is how many jobs Redis still knew at the end.
	InRedis int64
}

// A Sent is a message with the answers to its posts.
type Sent struct {
	Seq      int64
	Channel  int
	Identity identity
	Priority int
	Hash     string
	Due      time.Time // of a scheduled message, else zero
	To       string    // the only consumer that it is for; empty: all
	Posts    int       // that were announced
	Tries    []Try
}

// A Try is one post and its answer.
type Try struct {
	Verdict        string
	Status         int
	Code           string
	Broker         int
	Sent, Answered time.Time
	Client         string // that posted: a living one, or the way in which it died
}

// An Arrival is one delivery in the journal of the consumer.
type Arrival struct {
	Consumer int
	Seq      int64 // -1: not readable
	Hash     string
	Attempt  int
	Job      string
	Message  string    // public ID
	Broker   string    // that delivered it
	Asked    time.Time // request of the pull worker, from which on its lease may count; push: as At
	At       time.Time
	Promised bool      // the consumer was about to answer with success
	OK       bool      // it has; of a pull worker: the broker has accepted it
	OKAt     time.Time // when
	GaveBack bool      // a pull worker was about to give the job back
}

// A Stored is a row of the messages table.
type Stored struct {
	Seq      int64
	Channel  int
	ID       ident.ID
	Key      string
	Audience int
	Priority int
	Hash     string
	Removed  bool // it was there, until its retention was over
}

// Outcomes are the stored ends of one consumer's jobs.
type Outcomes struct {
	Delivered map[ident.ID]bool
	Dead      map[ident.ID]bool            // and not delivered
	Listed    map[ident.ID]bool            // as dead by the API
	Ended     map[ident.ID]success         // how the delivered ones were
	Failed    map[failure][]failedDelivery // attempts that the broker saw fail
}

// A success is the delivery that ended a job, as the store has it.
type success struct {
	Attempt int
	At      time.Time
}

// A failure names a failed attempt.
type failure struct {
	ID      ident.ID
	Attempt int
}

// A failedDelivery is the broker's record of a failed attempt.
type failedDelivery struct {
	Took  time.Duration
	Error string
}

// gather reads all of it.
func (r *rig) gather(ctx context.Context) (*Evidence, error) {
	e := &Evidence{Plan: r.plan, Sent: map[int64]*Sent{}, Faults: r.faults, Notes: r.notes, Rests: r.rests,
		Pauses: r.pauses, Attack: r.attack, Upgrade: r.upgraded, Exchanges: map[exchangeKey]Exchange{}}
	for n := 1; n <= r.producer.starts; n++ {
		if err := e.readProducer(r.journalOf(r.producer.name, n)); err != nil {
			return nil, err
		}
	}
	for _, c := range []*guarded{r.sinks, r.puller} {
		for n := 1; n <= c.starts; n++ {
			if err := e.readConsumer(r.journalOf(c.name, n)); err != nil {
				return nil, err
			}
		}
	}
	if r.neighbours != nil {
		for n := 1; n <= r.neighbours.starts; n++ {
			if err := e.readAttacks(r.journalOf(r.neighbours.name, n)); err != nil {
				return nil, err
			}
		}
	}
	err := r.gatherDeaths(e)
	if err != nil {
		return nil, err
	}
	if e.InRedis, err = r.redis.waiting(ctx); err != nil {
		return nil, err
	}
	if err := r.readStore(ctx, e); err != nil {
		return nil, err
	}
	for k := range e.Jobs {
		if e.Jobs[k].Listed, err = r.deadLetters(ctx, k); err != nil {
			return nil, err
		}
	}
	if err := r.readReplays(ctx, e); err != nil {
		return nil, err
	}
	if e.Askew, err = r.books(ctx); err != nil {
		return nil, err
	}
	for _, n := range r.nodes {
		e.Exits = append(e.Exits, n.ends()...)
	}
	return e, r.readLogs(e)
}

func (e *Evidence) readProducer(path string) error {
	return readJournal(path, func(kind byte, l *line) {
		seq := l.number(1)
		switch kind {
		case 'I':
			e.Sent[seq] = &Sent{Seq: seq, Channel: int(l.number(2)), Identity: identity(l.number(3)), Priority: int(l.number(4)),
				Hash: l.text(6), Posts: 1}
			if l.number(8) > 0 {
				e.Sent[seq].Due = l.time(8)
			}
			if to := l.text(9); to != "-" {
				e.Sent[seq].To = to
			}
		case 'P':
			if s := e.Sent[seq]; s != nil {
				s.Posts++
			}
		case 'T':
			if s := e.Sent[seq]; s != nil {
				s.Tries = append(s.Tries, Try{l.text(2), int(l.number(3)), l.text(4), int(l.number(5)), l.time(6), l.time(7),
					l.text(8)})
			}
		}
	})
}

// gatherDeaths reads the journals of clients that died.
func (r *rig) gatherDeaths(e *Evidence) error {
	if r.mortals == nil {
		return nil
	}
	for n := 1; n <= r.mortals.starts; n++ {
		path := r.journalOf(r.mortals.name, n)
		if err := errors.Join(e.readProducer(path), e.readConsumer(path), e.readDeaths(path)); err != nil {
			return err
		}
	}
	for _, c := range r.victims {
		for n := 1; n <= c.starts; n++ {
			path := r.journalOf(c.name, n)
			if err := errors.Join(e.readProducer(path), e.readConsumer(path)); err != nil {
				return err
			}
		}
	}
	e.Deaths = append(e.Deaths, r.deaths...)
	return nil
}

func (e *Evidence) readDeaths(path string) error {
	return readJournal(path, func(kind byte, l *line) {
		if kind == 'K' {
			e.Deaths = append(e.Deaths, Death{l.text(1), l.text(2), int(l.number(3)), l.time(4), l.time(5)})
		}
	})
}

func (e *Evidence) readConsumer(path string) error {
	byNumber := map[int64]int{}
	return readJournal(path, func(kind byte, l *line) {
		switch kind {
		case 'D':
			attempt, _ := strconv.Atoi(l.text(5)) // 0 where the header is missing, which the checker sees
			byNumber[l.number(1)] = len(e.Arrivals)
			e.Arrivals = append(e.Arrivals, Arrival{Consumer: int(l.number(2)), Seq: l.number(3), Hash: l.text(4),
				Attempt: attempt,
				Job:     l.text(6), Message: l.text(7), Broker: l.text(8), Asked: l.time(9), At: l.time(10)})
		case 'R':
			e.Replies = append(e.Replies, Reply{Seq: l.number(1), Consumer: l.text(2), Hash: l.text(3), Message: l.text(4),
				Taken: l.number(5) < 300, At: l.time(6)})
		case 'Y':
			e.Copies = append(e.Copies, Copy{Replay: l.number(1), Seq: l.number(2), Hash: l.text(3)})
		case 'O':
			i, ok := byNumber[l.number(1)]
			if !ok {
				return
			}
			a, status := &e.Arrivals[i], l.number(2)
			a.GaveBack = a.GaveBack || status == givingBack
			success := status >= 200 && status < 300
			a.Promised = a.Promised || success || status == reporting
			if success {
				a.OK, a.OKAt = true, l.time(3)
			}
		}
	})
}

// deadLetters reads the list of a consumer through the API, page by page.
func (r *rig) deadLetters(ctx context.Context, k int) (map[ident.ID]bool, error) {
	out := map[ident.ID]bool{}
	admin := administrator("http://" + r.nodes[k%len(r.nodes)].addr)
	for path := r.plan.path(k) + "/dlq?size=100"; path != ""; {
		var page struct {
			DeadJobs []struct{ ID string }
			Pages    map[string]string
		}
		if err := admin.Read(ctx, path, nil, &page); err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		for _, j := range page.DeadJobs {
			job, err := ident.Parse(j.ID)
			if err != nil {
				return nil, fmt.Errorf("read dead letters: job %q: %w", j.ID, err)
			}
			message, _, _ := job.Split()
			out[message] = true
		}
		path = page.Pages["next"]
	}
	return out, nil
}

// readLogs looks for words that a broker's log must not contain.
func (r *rig) readLogs(e *Evidence) error {
	for _, n := range r.nodes {
		path := filepath.Join(r.dir, n.name+".log")
		for _, word := range []string{"DATA RACE", "panic:", "fatal error:", "panic in a request handler",
			`"code":"internal"`} {
			count, err := countLines(path, word)
			if err != nil {
				return err
			}
			if count > 0 {
				e.Notes = append(e.Notes, Note{What: "log", Detail: fmt.Sprintf("%s has %d lines with %q", path, count, word),
					At: time.Now()})
			}
		}
	}
	return nil
}
