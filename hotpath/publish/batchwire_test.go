package publish

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/accept"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/test/memstore"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// A batchDoor is the batch door over TCP on a committer of its own.
type batchDoor struct {
	*Publisher
	store *memstore.Store
	addr  string
	// answered gets one value for each batch, when its answer is over: the error
	// that ends the connection, or nil.
	answered chan error
}

// newBatchDoor starts a door; waiting bounds what waits, bytes.
func newBatchDoor(t *testing.T, waiting int64) *batchDoor {
	t.Helper()
	store := &memstore.Store{Version: 1, Channels: []durable.Channel{{No: 1, ID: "c", Audience: 1, Version: 1}}}
	log := slog.New(slog.DiscardHandler)
	cat := catalogue.New(store, log)
	require.NoError(t, cat.Refresh(t.Context()))
	node, err := cluster.New(t.Context(), store, "test", log)
	require.NoError(t, err)
	bodies, counts := share.New(share.Options{Most: waiting}), metrics.New(prometheus.NewRegistry())
	g := accept.NewAdmission(1 << 20)
	submitter := accept.New(accept.Options{Store: store, Catalogue: cat, Node: node, Admission: g,
		Committed: func([]*durable.Message) {}, Bodies: bodies, Metrics: counts, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var committing sync.WaitGroup
	committing.Go(func() { submitter.Run(ctx) })
	stop := func() { cancel(); committing.Wait() }
	d := &batchDoor{store: store, answered: make(chan error, 1000), Publisher: &Publisher{Submitter: submitter,
		bytes: bodies, answers: answer.NewBound(waiting / 2), metrics: counts, maxBody: 64 << 10}}
	server := &fasthttp.Server{StreamRequestBody: true, MaxRequestBodySize: 1, Handler: func(rc *fasthttp.RequestCtx) {
		rc.Response.SetBodyStream(observed{d.batch(rc.RequestBodyStream(), rc.Conn()), d.answered}, -1)
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d.addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		require.NoError(t, server.Shutdown())
		require.NoError(t, <-done)
		stop()
		require.Zero(t, d.bytes.Taken(), "bytes that are counted and not held")
		require.Zero(t, d.answers.Taken())
		require.Zero(t, g.Inside())
	})
	return d
}

func (d *batchDoor) batch(body io.Reader, conn net.Conn) *batch {
	b := newBatch(context.Background(), d.Publisher.drafter(*testSender("c")), body, -1, conn)
	if !b.open() {
		panic("a door has room for a batch")
	}
	return b
}

// testSender returns a producer and its channel of an ID.
func testSender(channel string) *sender {
	ch := &catalogue.Channel{Channel: durable.Channel{No: 1, ID: channel, Audience: 1}}
	return &sender{ch: ch, producer: &durable.Producer{No: 1}}
}

// observed is a batch whose end is told.
type observed struct {
	*batch
	answered chan error
}

func (o observed) WriteTo(w io.Writer) (int64, error) {
	n, err := o.batch.WriteTo(w)
	o.answered <- err
	return n, err
}

func (d *batchDoor) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", d.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	require.NoError(t, err)
	return c.(*net.TCPConn)
}

func inChunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// results reads an answer to its end.
func results(t *testing.T, r *bufio.Reader) (status []int, last string, err error) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	scanner := bufio.NewScanner(res.Body)
	for scanner.Scan() {
		var line struct{ Status int }
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line))
		status, last = append(status, line.Status), scanner.Text()
	}
	return status, last, scanner.Err()
}

// A client that reads nothing is told so once it has sent the rest, and nothing
// that it was not answered for is stored.
func TestABatchWhoseAnswersAreNotReadIsRefusedWithALastLine(t *testing.T) {
	d := newBatchDoor(t, 2<<20)
	c := d.dial(t)
	require.NoError(t, c.SetReadBuffer(256<<10))
	lines := inChunk(strings.Repeat(`{"Payload":"p"}`+"\n", 1000))
	sent := 0
	for d.answers.Taken() <= d.answers.Most()/2 || sent < 2000 { // until it is held back
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		_, err := io.WriteString(c, lines)
		require.NoError(t, err)
		sent += 1000
	}
	for range 1000 { // more than the buffers of the kernel take: the client stalls with them
		_, err := io.WriteString(c, lines)
		require.NoError(t, err)
		sent += 1000
	}
	_, err := io.WriteString(c, "0\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	status, last, err := results(t, r)
	require.NoError(t, err, "the answer has an end")
	taken := len(status) - 1
	require.Less(t, taken, sent)
	require.Equal(t, 413, status[taken])
	for i := range taken {
		require.Equal(t, 201, status[i])
	}
	require.Contains(t, last, `"code":"answers_unread"`)
	require.Contains(t, last, fmt.Sprintf(`"Taken":%d`, taken))
	require.Equal(t, taken, d.store.Inserted())
	require.NoError(t, <-d.answered)
}

// A client that reads slowly is held back, and served.
func TestABatchClientThatReadsSlowlyIsHeldBack(t *testing.T) {
	d := newBatchDoor(t, 2<<20)
	c := d.dial(t)
	require.NoError(t, c.SetReadBuffer(256<<10))
	const chunks = 250
	go func() {
		lines := inChunk(strings.Repeat(`{"Payload":"p"}`+"\n", 1000))
		for range chunks {
			_, _ = io.WriteString(c, lines)
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
	}()
	for d.answers.Taken() <= d.answers.Most()/8 {
		time.Sleep(time.Millisecond)
	}
	status, _, err := results(t, bufio.NewReader(c))
	require.NoError(t, err)
	require.Len(t, status, 1000*chunks)
	for _, s := range status {
		require.Equal(t, 201, s)
	}
	require.NoError(t, <-d.answered)
}

// Whatever a client does, the goroutines of its batch are gone when its connection
// is, and what was taken is stored.
func TestABatchEndsWithItsConnection(t *testing.T) {
	line := `{"Payload":"p"}` + "\n"
	for name, leave := range map[string]func(t *testing.T, d *batchDoor, c *net.TCPConn){
		"without reading": func(t *testing.T, _ *batchDoor, c *net.TCPConn) { require.NoError(t, c.Close()) },
		"with a reset": func(t *testing.T, _ *batchDoor, c *net.TCPConn) {
			require.NoError(t, c.SetLinger(0))
			require.NoError(t, c.Close())
		},
		"after the first answer": func(t *testing.T, _ *batchDoor, c *net.TCPConn) {
			_, err := bufio.NewReader(c).ReadString('}')
			require.NoError(t, err)
			require.NoError(t, c.SetLinger(0))
			require.NoError(t, c.Close())
		},
		"while the store works": func(t *testing.T, d *batchDoor, c *net.TCPConn) {
			for d.store.Entered.Load() == 0 {
				runtime.Gosched()
			}
			require.NoError(t, c.SetLinger(0))
			require.NoError(t, c.Close())
		},
		"halfway": func(t *testing.T, _ *batchDoor, c *net.TCPConn) {
			require.NoError(t, c.CloseWrite())
			_, _, _ = results(t, bufio.NewReader(c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newBatchDoor(t, 64<<20)
			for range 20 {
				c := d.dial(t)
				_, err := io.WriteString(c, inChunk(strings.Repeat(line, 500)))
				require.NoError(t, err)
				leave(t, d, c)
				<-d.answered
			}
		})
	}
}

// One connection carries batch after batch.
func TestABatchLeavesItsConnectionForTheNext(t *testing.T) {
	d := newBatchDoor(t, 64<<20)
	c := d.dial(t)
	r := bufio.NewReader(c)
	for i := 1; i <= 20; i++ {
		if i > 1 {
			_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
			require.NoError(t, err)
		}
		_, err := io.WriteString(c, inChunk(strings.Repeat(`{"Payload":"p"}`+"\n", i))+"0\r\n\r\n")
		require.NoError(t, err)
		status, _, err := results(t, r)
		require.NoError(t, err)
		require.Len(t, status, i)
		require.NoError(t, <-d.answered)
	}
}

// Refusals that quote their lines are kept word for word only up to a number.
func TestABatchKeepsFewRefusalsWordForWord(t *testing.T) {
	d := newBatchDoor(t, 64<<20)
	var lines, answer strings.Builder
	for i := range 2 * mostRefusals {
		fmt.Fprintf(&lines, `{"name-%d":1}`+"\n", i)
	}
	lines.WriteString(`{"Payload":"p","Priority":-1}`)
	b := d.batch(strings.NewReader(lines.String()), nil)
	_, err := b.WriteTo(&answer)
	require.NoError(t, err)
	got := strings.Split(strings.TrimSpace(answer.String()), "\n")
	require.Len(t, got, 2*mostRefusals+1)
	for i, line := range got[:2*mostRefusals] {
		require.Contains(t, line, `{"Status":400,"code":"invalid_line"`)
		require.Equal(t, i < mostRefusals, strings.Contains(line, fmt.Sprintf(`name-%d\"`, i)), line)
	}
	require.Contains(t, got[2*mostRefusals], `"code":"invalid_priority"`)
	require.LessOrEqual(t, len(b.answers.refusals), mostRefusals+2)
}

// A panic in one of its parts ends one batch and nothing else.
func TestAPanicInABatchEndsThatBatch(t *testing.T) {
	d := newBatchDoor(t, 64<<20)
	lines := strings.Repeat(`{"Payload":"p"}`+"\n", 3000)
	for part, f := range map[string]func() error{
		"reader": func() error {
			_, err := d.batch(panicReader{}, nil).WriteTo(io.Discard)
			return err
		},
		"answers": func() error {
			b := d.batch(strings.NewReader(lines), nil)
			b.p = &Publisher{Submitter: d.Submitter, bytes: d.bytes, answers: d.answers, maxBody: d.maxBody} // no metrics
			_, err := b.WriteTo(io.Discard)
			return err
		},
		"writer": func() error {
			_, err := d.batch(strings.NewReader(lines), nil).WriteTo(panicWriter{})
			return err
		},
	} {
		require.ErrorIs(t, f(), guard.ErrPanic, part)
	}
	_, err := d.batch(strings.NewReader(lines), nil).WriteTo(io.Discard)
	require.NoError(t, err)
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("reader") }

type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("writer") }
