package fleet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const (
	// Every is the time between two notes of a broker.
	Every = 5 * time.Second
	// writeWithin bounds one turn.
	writeWithin = 2 * time.Second
	// stale is the age from which a note says nothing about the present, and gone that from which it is removed.
	stale, gone = 30 * time.Second, 2 * time.Minute
	// mostNotes bounds the brokers of which there are notes.
	mostNotes = 256
)

// A Queue is the part of redisq.Queue that keeps the notes of brokers.
type Queue interface {
	KeepBrokerNote(ctx context.Context, broker, note string) error
	BrokerNotes(ctx context.Context) (map[string]string, error)
	DropBrokerNotes(ctx context.Context, brokers []string) error
}

// Counts are what a broker counted since it began, and what it has now.
type Counts struct {
	Accepted, Delivered uint64
	InFlight, FanOut    int
	Answers             [3]uint64 // to publishes: 201, 202, 503
	Journal             Journal
}

// Options assemble a Keeper.
type Options struct {
	Queue   Queue
	Version apitype.Version
	Node    func() (no int, name string) // of this broker
	Count   func() Counts
	NowMs   func() int64 // the clock of the store
	Log     *slog.Logger
}

// A Keeper writes the note of this broker, and knows those of the others. It is safe for concurrent use.
type Keeper struct {
	o       Options
	field   string // of this process
	beganMs int64

	mu     sync.Mutex
	own    Note
	others []Note

	last     Counts // of the turn before; used by Run alone
	lastAt   time.Time
	lastBusy time.Duration
}

// New returns a keeper of a broker that begins now. Nothing is written before Run.
func New(o Options) *Keeper {
	var name [6]byte
	_, _ = rand.Read(name[:]) // it never fails
	return &Keeper{o: o, field: hex.EncodeToString(name[:]), beganMs: o.NowMs()}
}

// Notes returns the notes that say something about the present: that of this broker, and those of others.
func (k *Keeper) Notes() (own Note, others []Note) {
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := k.o.NowMs() - stale.Milliseconds()
	for _, n := range k.others {
		if n.AtMs >= oldest {
			others = append(others, n)
		}
	}
	return k.own, others
}

// Run writes notes until ctx ends, and then removes that of this broker.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	failing := false
	for {
		err := k.turn(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			k.o.Log.Debug("the note of this broker is not shared with the others; trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWithin)
			defer cancel()
			if !failing {
				_ = k.o.Queue.DropBrokerNotes(last, []string{k.field}) // else it is removed later
			}
			return
		case <-tick.C:
		}
	}
}

// turn writes the note of this broker, and reads those of the others.
func (k *Keeper) turn(ctx context.Context) error {
	own := k.note()
	k.mu.Lock()
	k.own = own
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if err := k.o.Queue.KeepBrokerNote(ctx, k.field, own.encode()); err != nil {
		return err
	}
	fields, err := k.o.Queue.BrokerNotes(ctx)
	if err != nil {
		return err
	}
	others, dead := k.read(fields)
	k.mu.Lock()
	k.others = others
	k.mu.Unlock()
	if len(dead) > 0 {
		return k.o.Queue.DropBrokerNotes(ctx, dead)
	}
	return nil
}

// read reads the notes of the others. dead are the fields of brokers that are gone, or that nobody can read.
func (k *Keeper) read(fields map[string]string) (others []Note, dead []string) {
	now := k.o.NowMs()
	for field, text := range fields {
		if field == k.field {
			continue
		}
		n, ok := decode(text)
		if !ok || now-n.AtMs > gone.Milliseconds() || n.AtMs-now > gone.Milliseconds() {
			dead = append(dead, field)
			continue
		}
		if len(others) < mostNotes {
			others = append(others, n)
		}
	}
	return others, dead
}

// note describes this broker now.
func (k *Keeper) note() Note {
	now, busy, c := time.Now(), processorTime(), k.o.Count()
	n := Note{AtMs: k.o.NowMs(), BeganMs: k.beganMs, Version: k.o.Version, Journal: c.Journal,
		Load: Load{InFlight: c.InFlight, FanOut: c.FanOut, Memory: memory()}}
	n.No, n.Name = k.o.Node()
	if past := now.Sub(k.lastAt).Seconds(); !k.lastAt.IsZero() && past > 0 {
		n.Accepted = float64(c.Accepted-k.last.Accepted) / past
		n.Delivered = float64(c.Delivered-k.last.Delivered) / past
		for i := range n.Answers {
			n.Answers[i] = float64(c.Answers[i]-k.last.Answers[i]) / past
		}
		n.Processors = (busy - k.lastBusy).Seconds() / past
	}
	k.last, k.lastAt, k.lastBusy = c, now, busy
	return n
}

// memory is how many bytes the process has of the system.
func memory() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
