package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A store is the real store on SQLite, in a folder of its own. It outlives every broker; storeSeam is
// how a broker reaches it. Its methods that have the name of one of durable.Store plant the flaw of the
// run, see storeflaws.go.
type store struct {
	*durable.Store
	raw      *sql.DB // one connection to the database that goes past the store
	dir      string
	behindMs atomic.Int64 // how far the clock of its server went back
	flaw     flaw
	report   func(format string, args ...any) // takes what is wrong with the store itself

	// mu makes one moment of a call and of what the checker makes of it.
	mu        turn
	known     catalogueCopy
	copies    int      // of rows
	seen      *picture // of the database, until it changes
	atVersion int64    // of the database, of seen

	// What the database does not tell, guarded by mu.
	purged  []*durable.Message             // that were there
	lost    map[jobKey]map[attemptKey]bool // every lease that ended without a word, those before a redrive too
	events  int64                          // the order of what follows
	died    map[jobKey]int64               // when the row of a dead job was stored, in events
	asked   map[redriveKey]int64           // when a redrive was created, in events
	began   map[uint32]time.Time           // when a replay was created
	changed map[uint32]time.Time           // when the state of a consumer was changed last
}

// A jobKey is a job: a message for one consumer.
type jobKey struct {
	consumer uint32
	id       ident.ID
}

type attemptKey struct {
	jobKey
	atMs    int64
	attempt int
}

// A redriveKey names a redrive.
type redriveKey struct{ consumer, no uint32 }

// A turn is a lock. Whoever waits for it does not keep the clock of the bubble from going on, as those do
// that wait for a sync.Mutex: its owner may wait for a timer.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

const databaseFile = "penstock.db"

// newTemplate makes an empty database with all tables, which each store begins as a copy of.
func newTemplate(dir string) ([]byte, error) {
	ctx := context.Background()
	s, err := durable.OpenSQLite(ctx, dir, durable.Options{})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, databaseFile))
}

// openStore opens a copy of a template in a new folder below parent. clock is the clock of its server.
func openStore(parent string, template []byte, clock func() time.Time) (*store, error) {
	dir, err := os.MkdirTemp(parent, "store")
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir, mu: make(turn, 1), lost: map[jobKey]map[attemptKey]bool{}, died: map[jobKey]int64{},
		asked: map[redriveKey]int64{}, began: map[uint32]time.Time{}, changed: map[uint32]time.Time{}}
	s.known = catalogueCopy{turn: make(turn, 1), channels: map[uint32]durable.Channel{},
		consumers: map[uint32]durable.Consumer{}, replays: map[uint32]durable.Replay{}}
	file := filepath.Join(dir, databaseFile)
	if err := os.WriteFile(file, template, 0o600); err != nil {
		return nil, err
	}
	s.Store, err = durable.OpenSQLite(context.Background(), dir, durable.Options{MaxConns: 2, Clock: func() int64 {
		return clock().UnixMilli() - s.behindMs.Load()
	}})
	if err != nil {
		return nil, err
	}
	params := url.Values{"_pragma": {"busy_timeout(10000)", "synchronous(OFF)"}, "_txlock": {"immediate"}}
	s.raw, err = sql.Open("sqlite", "file:"+file+"?"+params.Encode())
	if err != nil {
		return nil, err
	}
	s.raw.SetMaxOpenConns(1)
	return s, nil
}

// close ends the store and removes its folder.
func (s *store) close() error {
	return errors.Join(s.raw.Close(), s.Close(), os.RemoveAll(s.dir))
}

// stepBack lets the clock of the server go back.
func (s *store) stepBack(by time.Duration) { s.behindMs.Add(by.Milliseconds()) }

// nowMs is the time of the store.
func (s *store) nowMs() int64 { return must(s.NowMs(context.Background())) }

// within makes a call of the store at one moment. Only the broken database gives a call an error of the
// driver, and no run breaks it.
func within[V any](s *store, f func(ctx context.Context) (V, error)) (V, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flaw == storeClockGoesBack {
		s.write(`UPDATE clock SET ms = 0, ahead_ms = 0`)
	}
	out, err := f(context.Background())
	s.healthy(err)
	return out, err
}

// healthy reports an error that only a defect of the store explains.
func (s *store) healthy(err error) {
	var of *sqlite.Error
	if errors.As(err, &of) || errors.Is(err, context.DeadlineExceeded) {
		s.report("the store fails: %v", err)
	}
}

// must returns the value of a call that cannot fail.
func must[V any](v V, err error) V {
	if err != nil {
		panic(fmt.Sprintf("simulation: %v", err))
	}
	return v
}

// write changes the database past the store.
func (s *store) write(query string, args ...any) {
	must(s.raw.Exec(query, args...))
	s.seen = nil
}

// keep copies rows of a table, and returns a function that puts them back in place of those with the same
// key. where may be empty.
func (s *store) keep(table, where string, args ...any) (putBack func()) {
	s.copies++
	copied := fmt.Sprintf("temp.kept_%d", s.copies)
	s.write(`CREATE TABLE `+copied+` AS SELECT * FROM `+table+` `+where, args...)
	return func() { s.write(`REPLACE INTO ` + table + ` SELECT * FROM ` + copied) }
}
