package exchange

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

const (
	// lookAlone and lookOthers are the intervals of the look at all messages that clients wait for:
	// outcomes of this broker wake the board, those of the reaper and of other brokers do not.
	lookAlone, lookOthers = time.Second, 400 * time.Millisecond
	// lookAtOnce bounds the messages of one look.
	lookAtOnce = 2000
)

// An Until says for how many responses a client waits.
type Until struct {
	quorum int // 0: all
}

// First is one response; All is the end of every exchange.
var (
	First = Until{1}
	All   = Until{}
)

var errUntil = errors.New("must be first, all or quorum:N with N from 1 to 10000")

// ParseUntil reads "first", "all" or "quorum:N".
func ParseUntil(text string) (Until, error) {
	switch text {
	case "first":
		return First, nil
	case "all":
		return All, nil
	}
	number, ok := strings.CutPrefix(text, "quorum:")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > 10_000 || number[0] == '+' {
		return Until{}, errUntil
	}
	return Until{n}, nil
}

// met reports whether the client waits no longer: it has its responses, or no more will come.
func (u Until) met(c *count) bool {
	if u == All { // then the answer is complete
		return c.over >= c.all
	}
	return c.ended >= c.all || c.answered >= u.quorum
}

// BoardOptions assemble a Board.
type BoardOptions struct {
	Store     Store
	Catalogue *catalogue.Catalogue
	Policies  *policy.Book
	Alone     func() bool  // no other broker runs
	Waiters   *share.Bound // of clients that wait, one for each; nil: a bound of its own
	Log       *slog.Logger
}

// A Board has the clients of this broker that wait for responses.
type Board struct {
	BoardOptions
	waiting atomic.Int64
	poke    chan struct{} // capacity 1: dirty is not empty

	mu    sync.Mutex // guards the rest
	byID  map[ident.ID]*awaited
	dirty map[ident.ID]struct{}
}

// An awaited is a message with the clients that wait for its responses.
type awaited struct {
	channelNo uint32
	head      durable.Head
	tickets   map[*Ticket]struct{}
}

// A Ticket is one client that waits.
type Ticket struct {
	// Ready is closed when the responses for which the client waits are there, or will not come.
	Ready chan struct{}
	b     *Board
	key   share.Key
	id    ident.ID
	until Until
}

// NewBoard returns a board. Nothing is looked for before Run.
func NewBoard(o BoardOptions) *Board {
	if o.Waiters == nil {
		o.Waiters = intake.NewWaiters()
	}
	return &Board{BoardOptions: o, poke: make(chan struct{}, 1), byID: map[ident.ID]*awaited{},
		dirty: map[ident.ID]struct{}{}}
}

// Join adds a client that waits for the responses to a message; nil: as many wait as its key may
// have. The client calls Leave.
func (b *Board) Join(key share.Key, channelNo uint32, h durable.Head, until Until) *Ticket {
	if !b.Waiters.Take(key, 1) {
		return nil
	}
	b.waiting.Add(1)
	t := &Ticket{Ready: make(chan struct{}), b: b, key: key, id: h.ID, until: until}
	b.mu.Lock()
	a := b.byID[h.ID]
	if a == nil {
		a = &awaited{channelNo: channelNo, head: h, tickets: make(map[*Ticket]struct{}, 1)}
		b.byID[h.ID] = a
	}
	a.tickets[t] = struct{}{}
	b.mark(h.ID) // the responses may be there already
	b.mu.Unlock()
	return t
}

// Leave removes the client.
func (t *Ticket) Leave() {
	b := t.b
	b.waiting.Add(-1)
	b.Waiters.Give(t.key, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.byID[t.id]; a != nil {
		if delete(a.tickets, t); len(a.tickets) == 0 {
			delete(b.byID, t.id)
		}
	}
}

// Waiting returns how many clients wait.
func (b *Board) Waiting() int { return int(b.waiting.Load()) }

// Answered reports a job whose exchange this broker moved on. It never blocks, and costs one load
// while no client waits.
func (b *Board) Answered(_ uint32, id ident.ID) {
	if b.waiting.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID[id] != nil {
		b.mark(id)
	}
}

func (b *Board) mark(id ident.ID) {
	b.dirty[id] = struct{}{}
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// Run looks for responses until ctx ends.
func (b *Board) Run(ctx context.Context) {
	failing := false
	for {
		every := lookOthers
		if b.Alone() {
			every = lookAlone
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.poke:
		case <-timer.C:
			b.markAll()
		}
		timer.Stop()
		err := b.round(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			b.Log.Warn("responses that clients wait for cannot be looked for; the broker tries again", "error", err)
		}
		failing = err != nil
	}
}

func (b *Board) markAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.byID {
		b.dirty[id] = struct{}{}
	}
}

// round looks at the messages that may have new responses, a few queries for many of them.
func (b *Board) round(ctx context.Context) (failure error) {
	for ctx.Err() == nil {
		byChannel := b.take()
		if len(byChannel) == 0 {
			return failure
		}
		for no, heads := range byChannel {
			ch := b.Catalogue.ChannelByNo(no)
			if ch == nil {
				continue
			}
			counts, err := look(ctx, b.Store, Responders(ch, b.Policies), heads)
			if err != nil {
				failure = err // the next look at all messages repeats it
				continue
			}
			b.wake(counts)
		}
	}
	return failure
}

// take returns some of the dirty messages, by channel.
func (b *Board) take() map[uint32][]durable.Head {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[uint32][]durable.Head{}
	n := 0
	for id := range b.dirty {
		delete(b.dirty, id)
		if a := b.byID[id]; a != nil {
			out[a.channelNo] = append(out[a.channelNo], a.head)
			n++
		}
		if n == lookAtOnce {
			break
		}
	}
	return out
}

func (b *Board) wake(counts map[ident.ID]*count) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, c := range counts {
		a := b.byID[id]
		if a == nil {
			continue
		}
		for t := range a.tickets {
			if t.until.met(c) {
				close(t.Ready)
				delete(a.tickets, t)
			}
		}
		if len(a.tickets) == 0 {
			delete(b.byID, id)
		}
	}
}
