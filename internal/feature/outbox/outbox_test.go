package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	penstock "github.com/penstock-broker/penstock/clients/go"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// A shelf is a broker as far as a relay knows it: it keeps one message for each channel and ID.
type shelf struct {
	mu      sync.Mutex
	kept    map[string]penstock.Message
	order   []string
	asked   int
	refuses func(channel string, m penstock.Message) error
	away    error
	dies    func() // after the messages are kept, before the relay hears of it
}

func (s *shelf) PublishMany(_ context.Context, channel string, ms []penstock.Message) ([]penstock.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked += len(ms)
	results := make([]penstock.Result, len(ms))
	for i, m := range ms {
		switch {
		case s.away != nil:
			results[i].Err = s.away
			continue
		case s.refuses != nil:
			if results[i].Err = s.refuses(channel, m); results[i].Err != nil {
				continue
			}
		}
		key := channel + " " + m.ID
		if _, known := s.kept[key]; !known {
			s.kept[key] = m
			s.order = append(s.order, string(m.Payload))
		}
	}
	if s.dies != nil {
		s.dies()
	}
	return results, nil
}

func newShelf() *shelf { return &shelf{kept: map[string]penstock.Message{}} }

// A site is a database with an outbox.
type site struct {
	db  *sql.DB
	dsn string
	d   *dialect
}

// ddl is what penstock.outbox of the Python client prints.
func ddl(t *testing.T, dialect, table string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "python3", "-c",
		"import sys; sys.path.insert(0, '../../../clients/python'); import penstock.outbox; "+
			"print(penstock.outbox.ddl(sys.argv[1], sys.argv[2]))", dialect, table).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func newSite(t *testing.T, kind, dsn string) *site {
	t.Helper()
	db, d, err := open(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(t.Context(), strings.TrimRight(strings.TrimSpace(ddl(t, kind, "penstock_outbox")), ";"))
	require.NoError(t, err)
	return &site{db, dsn, d}
}

// eachSite runs f with each kind of database.
func eachSite(t *testing.T, f func(t *testing.T, s *site)) {
	t.Run("SQLite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "shop.db")
		db, err := sql.Open("sqlite", file)
		require.NoError(t, err)
		require.NoError(t, db.PingContext(t.Context()))
		_, err = db.ExecContext(t.Context(), "PRAGMA journal_mode=WAL")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		f(t, newSite(t, "sqlite", "sqlite:"+file))
	})
	t.Run("real servers", func(t *testing.T) {
		t.Run("MySQL", func(t *testing.T) { f(t, newSite(t, "mysql", servers.MySQL(t))) })
		t.Run("PostgreSQL", func(t *testing.T) { f(t, newSite(t, "postgresql", postgres(t))) })
	})
}

func (s *site) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := s.db.ExecContext(t.Context(), s.d.of(statement, "penstock_outbox"), args...)
	require.NoError(t, err)
}

func (s *site) add(t *testing.T, channel, payload, headers string) {
	t.Helper()
	s.exec(t, "INSERT INTO %s (channel, payload, headers) VALUES (?, ?, ?)", channel, []byte(payload),
		sql.NullString{String: headers, Valid: headers != ""})
}

func (s *site) left(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), s.d.of("SELECT COUNT(*) FROM %s", "penstock_outbox")).Scan(&n))
	return n
}

func (s *site) relay(t *testing.T, to Publisher) *Relay {
	t.Helper()
	r, err := Open(Options{DSN: s.dsn, Table: "penstock_outbox", Poll: 10 * time.Millisecond, To: to, Log: slog.Default()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestRowsArePublishedInOrderAndDeleted(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		var want []string
		for i := range 3*mostRows + 7 {
			want = append(want, fmt.Sprint(i))
			s.add(t, "orders", fmt.Sprint(i), "")
		}
		s.exec(t, "INSERT INTO %s (channel, payload, headers, priority, message_id) VALUES (?, ?, ?, ?, ?)", "mails",
			[]byte{0, 255},
			`{"content-type":"image/png","X-Broker-Task":"send","X-Broker-Delay":"90","X-Shop":"a",`+
				`"X-Broker-Consumers":"a, b"}`, 7, "own")
		to := newShelf()
		sent, err := s.relay(t, to).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, len(want)+1, sent)
		require.Equal(t, want, to.order[:len(want)])
		require.Zero(t, s.left(t))
		m := to.kept["mails own"]
		require.Equal(t, penstock.Message{ID: "own", Payload: []byte{0, 255}, ContentType: "image/png", Priority: 7,
			Task: "send", Delay: 90 * time.Second, Consumers: []string{"a", "b"}, Headers: map[string]string{"X-Shop": "a"}}, m)
		require.Contains(t, to.kept, "orders outbox:penstock_outbox:1")
	})
}

func TestARefusedRowStaysWithItsErrorAndHoldsNobodyUp(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		s.add(t, "nowhere", "1", "")
		s.add(t, "orders", "2", "not JSON")
		s.add(t, "orders", "3", `{"X-Broker-Nonsense":"1"}`)
		s.add(t, "orders", "4", "")
		to := newShelf()
		to.refuses = func(channel string, _ penstock.Message) error {
			if channel == "nowhere" {
				return &penstock.Error{Status: 404, Code: "channel_not_found", Detail: "There is no such channel."}
			}
			return nil
		}
		r := s.relay(t, to)
		sent, err := r.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []any{1, 3, 3}, []any{sent, r.Refused(), s.left(t)})
		rows, err := s.db.QueryContext(t.Context(), s.d.of("SELECT error, attempts FROM %s ORDER BY id", "penstock_outbox"))
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for _, want := range []string{"404 channel_not_found", "must be a JSON object of texts",
			`"X-Broker-Nonsense" cannot be set`} {
			var text string
			var attempts int
			require.True(t, rows.Next())
			require.NoError(t, rows.Scan(&text, &attempts))
			require.Contains(t, text, want)
			require.Equal(t, 1, attempts)
		}
		require.NoError(t, rows.Err())
		s.exec(t, "UPDATE %s SET retry_at = 0, headers = NULL")
		to.refuses = nil
		sent, err = r.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, sent)
		require.Zero(t, s.left(t))
	})
}

func TestFaultABrokerThatIsAwayOrClosedCostsNoRow(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		s.add(t, "orders", "1", "")
		to := newShelf()
		for _, away := range []error{&penstock.Error{Err: errors.New("refused")}, &penstock.Error{Status: 503},
			&penstock.Error{Status: 401, Code: "token_missing"}, context.Canceled} {
			to.away = away
			_, err := s.relay(t, to).Once(t.Context())
			require.ErrorIs(t, err, away)
			require.Equal(t, 1, s.left(t))
		}
		to.away = nil
		sent, err := s.relay(t, to).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, sent)
	})
}

// A relay that dies between the publish and the delete leaves rows that are published again with their IDs.
func TestFaultARelayThatDiesAfterThePublishPublishesNothingTwice(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		for i := range 10 {
			s.add(t, "orders", fmt.Sprint(i), "")
		}
		to := newShelf()
		dying := s.relay(t, to)
		to.dies = func() { _ = dying.db.Close() }
		_, err := dying.Once(t.Context())
		if s.d.shared {
			require.Error(t, err)
		}
		to.dies = nil
		_, err = s.relay(t, to).Once(t.Context())
		require.NoError(t, err)
		require.Len(t, to.kept, 10)
		require.Len(t, to.order, 10)
		require.Zero(t, s.left(t))
	})
}

func TestRelaysSideBySideShareTheRows(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		const rows = 1000
		for i := range rows {
			s.add(t, "orders", fmt.Sprint(i), "")
		}
		to := newShelf()
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range 3 {
			r := s.relay(t, to)
			running.Go(func() { _ = r.Run(ctx) })
		}
		require.Eventually(t, func() bool { return s.left(t) == 0 }, 5*time.Minute, 20*time.Millisecond)
		stop()
		running.Wait()
		require.Len(t, to.kept, rows)
		if s.d.shared {
			require.Equal(t, rows, to.asked, "no row is read by two")
		}
	})
}

func TestATransactionThatIsRolledBackSendsNothing(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		insert := s.d.of("INSERT INTO %s (channel, payload) VALUES (?, ?)", "penstock_outbox")
		for _, commit := range []bool{true, false, true} {
			tx, err := s.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), insert, "orders", []byte(fmt.Sprint(commit)))
			require.NoError(t, err)
			if commit {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
		}
		to := newShelf()
		_, err := s.relay(t, to).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"true", "true"}, to.order)
	})
}

// The payloads that are read at once are bounded, and a large one still goes.
func TestLargePayloadsAreReadAFewAtATime(t *testing.T) {
	eachSite(t, func(t *testing.T, s *site) {
		large := strings.Repeat("x", mostBytes*3/4)
		for range 5 {
			s.add(t, "orders", large, "")
		}
		to := newShelf()
		r := s.relay(t, to)
		sent, read, err := r.round(t.Context(), time.Now().UnixMilli())
		require.NoError(t, err)
		require.Equal(t, []int{2, 2}, []int{sent, read})
		more, err := r.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, more)
	})
}

func TestAnOutboxThatCannotBeIsRefusedWithoutItsPassword(t *testing.T) {
	for _, dsn := range []string{"", "secret", "mysql://u:secret@/", "mysql://u:secret@127.0.0.1:1",
		"u:secret@tcp(127.0.0.1:1)",
		"postgres://u:secret@127.0.0.1:1", "postgres://u:secret@[::1/db", "mysql://u:secret@127.0.0.1:x/db", "sqlite:"} {
		_, err := Open(Options{DSN: dsn, Table: "t", Log: slog.Default()})
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, table := range []string{"", "a b", "1a", "a;drop table b", "a.b", strings.Repeat("a", 65)} {
		_, err := Open(Options{DSN: "sqlite:x", Table: table, Log: slog.Default()})
		require.ErrorContains(t, err, "a table has", table)
	}
	for _, dsn := range []string{"sqlite:" + filepath.Join(t.TempDir(), "none.db"), "mysql://u:secret@127.0.0.1:1/db",
		"postgres://u:secret@127.0.0.1:1/db"} {
		r, err := Open(Options{DSN: dsn, Table: "t", To: newShelf(), Log: slog.Default()})
		require.NoError(t, err)
		err = r.Run(t.Context())
		require.Error(t, err, "a mistake at the start ends it")
		require.NotContains(t, err.Error(), "secret")
		require.NoError(t, r.Close())
	}
}

func TestHeadersOfARowAreThoseOfAPublish(t *testing.T) {
	for name, set := range map[string]penstock.Message{
		"Content-Encoding: gzip":       {ContentEncoding: "gzip"},
		"x-broker-ordering-key: k":     {OrderingKey: "k"},
		"X-Broker-Message-TTL: 1h":     {TTL: time.Hour},
		"X-Broker-Message-TTL: banana": {},
		"X-Broker-Message-ID: x":       {},
	} {
		header, value, _ := strings.Cut(name, ": ")
		var m penstock.Message
		err := setHeader(&m, header, value)
		if slices.Contains([]string{"banana", "x"}, value) {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, set, m)
	}
}
