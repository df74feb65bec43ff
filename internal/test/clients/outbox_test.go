package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shop is a program that sells: each order is a row and a message in one transaction, and some are taken back.
const shop = `
import sqlite3, sys
import penstock.outbox as outbox
db = sqlite3.connect(sys.argv[1], timeout=60)
db.execute("PRAGMA journal_mode=WAL")
db.executescript(outbox.ddl("sqlite"))
db.execute("CREATE TABLE IF NOT EXISTS orders (n INTEGER)")
db.commit()
for n in range(int(sys.argv[2])):
    cursor = db.cursor()
    cursor.execute("INSERT INTO orders VALUES (?)", (n,))
    outbox.add(cursor, "orders", {"n": n}, headers={"X-Broker-Task": "ship"}, priority=n % 3)
    if n % 5 == 4:
        db.rollback()
    else:
        db.commit()
print(db.execute("SELECT COUNT(*) FROM orders").fetchone()[0])
`

// relay starts broker outbox.
func relay(t *testing.T, b *broker, db string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(brokerProgram, append([]string{"outbox", "--dsn", "sqlite:" + db}, args...)...)
	cmd.Env = append(cleanEnv(), "PENSTOCK_URL="+b.url)
	said := &text{}
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if t.Failed() {
			t.Logf("relay: %s", said)
		}
	})
	return cmd
}

// messages returns how many messages a channel has.
func (b *broker) messages(channel string) (n int) {
	b.t.Helper()
	next := "/channel/" + channel + "/messages?size=100"
	for next != "" {
		res, err := http.Get(b.url + next)
		require.NoError(b.t, err)
		var page struct {
			Result []json.RawMessage
			Pages  struct {
				Next string `json:"next"`
			}
		}
		err = json.NewDecoder(res.Body).Decode(&page)
		_ = res.Body.Close()
		require.NoError(b.t, err)
		n += len(page.Result)
		next = strings.TrimPrefix(page.Pages.Next, b.url)
	}
	return n
}

// Relays are killed at bad moments, side by side, and so is the broker: each order that was committed has one
// message, and one that was taken back has none.
func TestFaultAnOutboxSendsEachCommittedRowOnceWhateverDies(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	db := filepath.Join(t.TempDir(), "shop.db")
	path, err := filepath.Abs(filepath.Join(root, "clients/python"))
	require.NoError(t, err)
	command(t, t.TempDir(), []string{"PYTHONPATH=" + path}, "python3", "-c", shop, db, "0")
	selling := exec.Command("python3", "-c", shop, db, "1000")
	var sold bytes.Buffer
	selling.Env, selling.Stdout, selling.Stderr = append(cleanEnv(), "PYTHONPATH="+path), &sold, &sold
	require.NoError(t, selling.Start())
	sale := make(chan error, 1)
	go func() { sale <- selling.Wait() }()
	var ended error
	for n, over := 0, false; n < 5 || !over; n++ {
		require.Less(t, n, 500, "the shop does not end")
		one, other := relay(t, b, db, "--poll", "10ms"), relay(t, b, db, "--poll", "10ms")
		time.Sleep(time.Duration(100+70*n%400) * time.Millisecond) // when they die: any moment will do
		require.NoError(t, one.Process.Kill())
		require.NoError(t, other.Process.Kill())
		_, _ = one.Process.Wait()
		_, _ = other.Process.Wait()
		if n == 2 {
			b.kill()
			b = startBrokerOn(t, b.data)
		}
		select {
		case ended = <-sale:
			over = true
		default:
		}
	}
	require.NoError(t, ended, sold.String())
	require.Equal(t, "800", strings.TrimSpace(sold.String()))
	out := command(t, t.TempDir(), []string{"PENSTOCK_URL=" + b.url}, brokerProgram, "outbox", "--dsn", "sqlite:"+db,
		"--once")
	require.Contains(t, out, "messages published")
	require.Equal(t, 800, b.messages("orders"))
	require.Contains(t, command(t, t.TempDir(), nil, "python3", "-c", fmt.Sprintf(
		"import sqlite3; print(sqlite3.connect(%q).execute('SELECT COUNT(*) FROM penstock_outbox').fetchone())", db)), "(0,)")
}
