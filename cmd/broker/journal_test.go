package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

const ackHeader = "X-Broker-Ack"

// journalled makes channel c with ack=journal and pull consumer k.
func (p *process) journalled(fields ...string) {
	p.t.Helper()
	p.sample("k")
	p.put("/channel/c", append([]string{"ack", "journal"}, fields...)...)
}

// broadcast posts a message to channel c.
func (p *process) broadcast(body string, headers ...string) reply {
	p.t.Helper()
	return p.do("POST", "/channel/c/broadcast", body, append(append([]string{}, producerTokens...), headers...)...)
}

// later posts a message and requires that the journal takes it. It returns the receipt.
func (p *process) later(body string, headers ...string) string {
	p.t.Helper()
	r := p.broadcast(body, headers...)
	require.Equal(p.t, 202, r.status, r.body)
	require.Equal(p.t, "journal", r.header.Get(ackHeader))
	receipt := r.header.Get("Location")
	require.Regexp(p.t, `^/receipt/[0-9a-v]{32}$`, receipt)
	return receipt
}

// redeem waits until a receipt leads to its message, and returns the path of that.
func (p *process) redeem(receipt string) (path string) {
	p.t.Helper()
	eventually(p.t, "the message of "+receipt, func() bool {
		r := p.do("GET", receipt, "")
		if r.status == 503 { // the store is still coming back
			return false
		}
		require.Contains(p.t, []int{202, 303}, r.status, r.body)
		path = r.header.Get("Location")
		return r.status == 303
	})
	require.Equal(p.t, 200, p.do("GET", path, "").status)
	return path
}

// payloads claims what consumer k has until it has seen each of these, and returns how often it saw each
// payload, and the payloads in the order of their first delivery.
func (p *process) payloads(want ...string) (times map[string]int, order []string) {
	p.t.Helper()
	times = map[string]int{}
	eventually(p.t, fmt.Sprintf("%d messages", len(want)), func() bool {
		r := p.do("POST", "/channel/c/consumer/k/claim?limit=500&timeout=600", "", consumerTokens("k")...)
		require.Equal(p.t, 200, r.status, r.body)
		for _, job := range r.json(p.t)["Result"].([]any) {
			body := job.(map[string]any)["Message"].(map[string]any)["Payload"].(string)
			if times[body]++; times[body] == 1 {
				order = append(order, body)
			}
		}
		for _, body := range want {
			if times[body] == 0 {
				return false
			}
		}
		return true
	})
	return times, order
}

func (p *process) requireEachOnce(want ...string) (order []string) {
	p.t.Helper()
	times, order := p.payloads(want...)
	for _, body := range want {
		require.Equal(p.t, 1, times[body], body)
	}
	return order
}

// journalWorld has a MySQL of its own behind a proxy.
func journalWorld(t *testing.T) (*world, *proxy.Proxy) {
	w := ownMySQLWorld(t)
	r, err := proxy.Start("127.0.0.1:" + strconv.Itoa(w.mysql.Port()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	w.env = []string{"BROKER_MYSQL_DSN=" + port.ReplaceAllString(w.mysql.DSN(), r.Addr()), "BROKER_REDIS_URL=" +
		w.redis.URL(),
		"BROKER_DATA_DIR=" + t.TempDir(), "BROKER_RATIONAL_DELAY=500ms"}
	return w, r
}

func labelled(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return out
}

func TestMySQLStandsStillAndTheJournalTakesMessagesInOrderOnce(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	p := w.start()
	p.sample("k")
	p.put("/channel/c/consumer/k", "responses", "store")
	require.Equal(t, "durable", p.broadcast("before").header.Get(ackHeader))
	p.put("/channel/c", "ack", "journal") // from here on a slow machine may answer 202
	w.mysql.Pause()
	var receipts []string
	for i, body := range labelled("m", 30) {
		var headers []string
		if i%3 == 0 {
			headers = []string{"X-Broker-Message-ID", body}
		} else if i%3 == 1 {
			headers = []string{"X-Broker-Ordering-Key", "o"}
		}
		receipts = append(receipts, p.later(body, headers...))
	}
	again := p.later("m-000", "X-Broker-Message-ID", "m-000")
	other := p.later("another", "X-Broker-Message-ID", "m-000")
	for _, receipt := range receipts {
		r := p.do("GET", receipt, "")
		require.Equal(t, 202, r.status, r.body)
		require.Equal(t, "journal", r.header.Get(ackHeader))
	}
	lines := p.do("POST", "/channel/c/batch", `{"Payload":"line-1","MessageID":"line-1"}`+"\n"+`{"Payload":"line-2"}`,
		append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...)
	require.Regexp(t, `^{"Status":202,"Ack":"journal","MessageID":"line-1","Location":"/receipt/[0-9a-v]{32}"}
{"Status":202,"Ack":"journal","Location":"/receipt/[0-9a-v]{32}"}
$`, lines.body)
	asked := p.do("POST", "/channel/c/request", "asked", append([]string{"X-Broker-Message-ID", "asked"},
		producerTokens...)...)
	require.Equal(t, 202, asked.status, asked.body)
	require.Equal(t, "journal", asked.header.Get(ackHeader))
	w.mysql.Resume()
	require.Equal(t, "/channel/c/message/asked", p.redeem(asked.header.Get("Location")),
		"a request whose message waits has a receipt")
	for i, receipt := range receipts {
		if path := p.redeem(receipt); i%3 == 0 {
			require.Equal(t, "/channel/c/message/"+fmt.Sprintf("m-%03d", i), path)
		}
	}
	require.Equal(t, "/channel/c/message/m-000", p.redeem(again))
	eventually(t, "the conflict", func() bool { return p.do("GET", other, "").status == 410 })
	require.Contains(t, p.do("GET", other, "").body, "message_id_conflict")
	order := p.requireEachOnce(append(labelled("m", 30), "before", "line-1", "line-2", "asked")...)
	require.Equal(t, append(append([]string{"before"}, labelled("m", 30)...), "line-1", "line-2", "asked"), order)
	eventually(t, "a store that is used again", func() bool { return p.broadcast("after").status == 201 })
	require.Zero(t, p.stop())
}

func TestMySQLIsStoppedAndTheBrokerKilledAndTheJournalIsStoredOnce(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	p := w.start()
	p.journalled()
	p.broadcast("before")
	w.mysql.Stop()
	var receipts []string
	for _, body := range labelled("m", 20) {
		receipts = append(receipts, p.later(body))
	}
	p.kill()
	w.mysql.Restart()
	p = w.start()
	for _, receipt := range receipts {
		p.redeem(receipt)
	}
	p.requireEachOnce(append(labelled("m", 20), "before")...)
	for _, receipt := range []string{"/receipt/0", "/receipt/" + strings.Repeat("0", 32),
		receipts[0][:len(receipts[0])-1] + "w"} {
		require.Equal(t, 404, p.do("GET", receipt, "").status, receipt)
	}
}

// The store has the message, and its answer is lost: the journal has it too, and its replay finds it.
func TestALostAnswerOfMySQLAndAKillStoreAMessageOfTheJournalOnce(t *testing.T) {
	parallel(t)
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			parallel(t)
			w, link := journalWorld(t)
			p := w.start()
			p.sample("k")
			for i := range 5 {
				require.Equal(t, 201, p.broadcast(fmt.Sprint("warm-", i)).status)
			}
			p.put("/channel/c", "ack", "journal")
			link.Set(proxy.Weather{StallDown: true})
			receipt := p.later("lost")
			keyed := p.later("keyed", "X-Broker-Message-ID", "keyed")
			time.Sleep(300 * time.Millisecond) // the statement is at the server
			if kill {
				p.kill()
			}
			link.Cut()
			link.Set(proxy.Weather{})
			if kill {
				p = w.start()
			}
			p.redeem(receipt)
			p.redeem(keyed)
			p.requireEachOnce("lost", "keyed")
			p.broadcast("end")
			times, _ := p.payloads("end")
			require.Zero(t, times["lost"]+times["keyed"])
		})
	}
}

func TestKillsAroundTheJournalLoseNothingAndStoreNothingTwice(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		for _, point := range []string{failpoint.JournalWritten, failpoint.JournalFlushed, failpoint.JournalReplayed} {
			t.Run(point, func(t *testing.T) {
				w := &world{t: t, redis: w.redis, mysql: w.mysql, env: w.env}
				dir := t.TempDir()
				if w.redis == nil {
					w.env = []string{"BROKER_DATA_DIR=" + dir}
				} else {
					w.with("BROKER_DATA_DIR=" + dir)
				}
				p := w.start(envKill + "=" + point + ":3:300ms") // whoever is answered meanwhile is in the journal, or lost
				p.sample("k")
				p.put("/channel/c", "ack", "journal", "latencyBudget", "1ms")
				acked := p.floodUntilItDies(point)
				require.NotEmpty(t, acked)
				p = w.start()
				p.requireEachOnce(acked...)
			})
		}
	})
}

// floodUntilItDies posts messages without an ID and returns those that were answered with success.
func (p *process) floodUntilItDies(prefix string) (acked []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 20_000 {
				body := fmt.Sprintf("%s-%d-%d", prefix, worker, i)
				r, err := p.try("POST", "/channel/c/broadcast", body, producerTokens...)
				select {
				case <-p.done:
					return
				default:
				}
				if err != nil {
					continue
				}
				if r.status == 201 || r.status == 202 {
					mu.Lock()
					acked = append(acked, body)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	p.awaitEnd()
	return acked
}

func TestTheJournalOfAKilledBrokerIsReplayedByACommand(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	gone, p := w.start(), w.start("BROKER_DATA_DIR="+t.TempDir())
	gone.journalled()
	dir := w.setting("BROKER_DATA_DIR")
	w.mysql.Pause()
	receipt := gone.later("left")
	code, _ := w.replayFor(dir, 3*time.Second) // a MySQL that stands still holds it up
	require.NotZero(t, code)
	w.mysql.Resume()
	gone.redeem(receipt)
	code, said := w.replay(dir)
	require.Equal(t, exitStart, code, "the broker lives")
	require.Contains(t, said, "a living broker uses the folder")

	w.mysql.Pause()
	receipt = gone.later("left again")
	gone.kill()
	w.mysql.Resume()
	require.Contains(t, []int{202, 503}, p.do("GET", receipt, "").status, "another broker knows the receipt")
	code, said = w.replay(dir)
	require.Zero(t, code, said)
	require.Contains(t, said, "1 messages are stored, 0 cannot be")
	require.Equal(t, 303, p.do("GET", receipt, "").status)
	p.requireEachOnce("left", "left again")
	code, said = w.replay(dir)
	require.Zero(t, code, said)
	require.Contains(t, said, "0 messages are stored")
	code, _ = w.replay(t.TempDir())
	require.Equal(t, exitUsage, code)
}

// replay runs broker journal replay.
func (w *world) replay(dir string) (code int, said string) {
	w.t.Helper()
	return w.replayFor(dir, patience)
}

// replayFor runs broker journal replay and ends it after a time.
func (w *world) replayFor(dir string, most time.Duration) (code int, said string) {
	w.t.Helper()
	var out bytes.Buffer
	c := exec.Command(os.Args[0], "journal", "replay", dir)
	c.Env = append(append(clearedEnv(), envMain+"=1"), w.env...)
	c.Stdout, c.Stderr = &out, &out
	require.NoError(w.t, c.Start())
	end := time.AfterFunc(most, func() { _ = c.Process.Signal(syscall.SIGTERM) })
	defer end.Stop()
	kill := time.AfterFunc(most+patience, func() { _ = c.Process.Kill() })
	defer kill.Stop()
	_ = c.Wait()
	return c.ProcessState.ExitCode(), out.String()
}

func TestMySQLIsAwayAndAFullJournalRefusesAndTellsNoLie(t *testing.T) {
	parallel(t)
	w, _ := journalWorld(t)
	w.with("BROKER_JOURNAL_MAX_BYTES=128KiB")
	p := w.start()
	p.journalled()
	p.broadcast("before")
	w.mysql.Pause()
	var acked []string
	full := reply{}
	for i := range 2000 {
		body := fmt.Sprintf("%d-%s", i, strings.Repeat("x", 500))
		if full = p.broadcast(body); full.status == 202 {
			acked = append(acked, body)
		} else if !strings.Contains(full.body, `"outcome_unknown"`) { // of one that the store was asked to take
			break
		}
	}
	require.Equal(t, 503, full.status, full.body)
	require.Contains(t, full.body, `"journal_full"`)
	require.NotEmpty(t, full.header.Get("Retry-After"))
	require.Greater(t, len(acked), 50)
	w.mysql.Resume()
	p.requireEachOnce(acked...)
}

// A disk returns another byte than was written: one message is lost, its receipt says so, and the
// file is kept. All others are stored, by a broker or by the command.
func TestAFlippedByteInTheJournalOfAMySQLThatWasAwayLosesOneMessageAndSaysSo(t *testing.T) {
	parallel(t)
	for _, command := range []bool{false, true} {
		t.Run(fmt.Sprint("command ", command), func(t *testing.T) {
			parallel(t)
			w, _ := journalWorld(t)
			p := w.start()
			p.journalled()
			w.mysql.Pause()
			receipts := map[string]string{}
			for _, body := range labelled("m", 20) {
				receipts[body] = p.later(body)
			}
			p.kill()
			w.mysql.Resume()
			dir := w.setting("BROKER_DATA_DIR")
			files, err := filepath.Glob(filepath.Join(dir, "journal", "*", "*.wal"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			b, err := os.ReadFile(files[0])
			require.NoError(t, err)
			b[bytes.Index(b, []byte("m-010"))] ^= 0x40
			require.NoError(t, os.WriteFile(files[0], b, 0o600))
			if command {
				code, said := w.replay(dir)
				require.Zero(t, code, said)
				require.Contains(t, said, "19 messages are stored, 0 cannot be, 1 are lost")
			}
			p = w.start()
			for body, receipt := range receipts {
				if body != "m-010" {
					p.redeem(receipt)
				}
			}
			eventually(t, "the loss", func() bool { return p.do("GET", receipts["m-010"], "").status == 410 })
			require.Contains(t, p.do("GET", receipts["m-010"], "").body, "lost")
			p.requireEachOnce(append(labelled("m", 10), labelled("m", 20)[11:]...)...)
			eventually(t, "the file", func() bool { _, err := os.Stat(files[0] + ".damaged"); return err == nil })
		})
	}
}

func TestAMessageOfTheJournalWaitsForAPausedChannel(t *testing.T) {
	parallel(t)
	w, link := journalWorld(t)
	a, b := w.start(), w.start("BROKER_DATA_DIR="+t.TempDir())
	a.journalled()
	link.Set(proxy.Weather{StallUp: true, StallDown: true})
	receipt := a.later("held")
	a.kill()
	link.Cut()
	link.Set(proxy.Weather{})
	require.Equal(t, 200, b.do("POST", "/channel/c/pause", "").status)
	a = w.start()
	time.Sleep(2 * time.Second)
	require.Equal(t, 202, a.do("GET", receipt, "").status)
	require.Equal(t, 200, b.do("POST", "/channel/c/resume", "").status)
	a.redeem(receipt)
	a.requireEachOnce("held")
}
