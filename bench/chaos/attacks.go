//go:build unix

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// An attack holds something that users share. mount returns how many connections, requests or
// messages it had, 0 if its broker was away, and holds them until ctx ends.
type attack struct {
	kind  string
	mount func(n *neighbour, ctx context.Context) (held int)
}

// attacks are all of them.
var attacks = []attack{
	{"publish that drips", (*neighbour).slowPublish},
	{"bulk that drips", (*neighbour).slowBulk},
	{"batch that drips", (*neighbour).slowBatch},
	{"management that drips", (*neighbour).slowForm},
	{"answers that are not read", (*neighbour).unread},
	{"connections that rest", (*neighbour).rest},
	{"claims that wait", (*neighbour).claims},
	{"requests that wait", (*neighbour).requests},
	{"responses after long", (*neighbour).lateResponses},
	{"results that hang", (*neighbour).hangingResults},
	{"reply URLs that hang", (*neighbour).hangingReplies},
	{"files that are slow", (*neighbour).slowFiles},
	{"lines of many names", (*neighbour).wideLines},
	{"templates of many columns", (*neighbour).wideTemplates},
}

const (
	ndjson      = "application/x-ndjson"
	formEncoded = "application/x-www-form-urlencoded"
)

// hold opens connections, sends text on each, then drip again and again, and reads nothing. It
// returns how many connections it had at first.
func (n *neighbour) hold(ctx context.Context, conns int, text []byte, drip string) (held int) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close() // what was sent is not meant to arrive
		}
	}()
	for range min(conns, heldAtMost) {
		c, err := n.dialContext(ctx, "", "")
		if err != nil {
			break
		}
		open = append(open, c)
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10) // fails only on what is closed
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		_, _ = c.Write(text) // the broker may refuse the rest
	}
	for ctx.Err() == nil {
		pause(ctx, dripEvery)
		for _, c := range open {
			if drip != "" {
				_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				_, _ = io.WriteString(c, drip) // a connection that the broker has ended stays in the count
			}
		}
	}
	return len(open)
}

// chunked is the beginning of a request whose body comes in chunks.
func chunked(path, contentType string, fields []string, begin string) []byte {
	b := append(request(path, contentType, fields...), "Transfer-Encoding: chunked\r\n\r\n"...)
	return fmt.Appendf(b, "%x\r\n%s\r\n", len(begin), begin)
}

// slowPublish announces 4 MiB, sends a part, and then a byte each second.
func (n *neighbour) slowPublish(ctx context.Context) int {
	b := append(request(n.path("/broadcast"), "text/plain", n.fields()...), "Content-Length: 4194304\r\n\r\n"...)
	return n.hold(ctx, heldAtMost, append(b, strings.Repeat("x", 1+n.rng.IntN(1<<20))...), "x")
}

func (n *neighbour) slowBulk(ctx context.Context) int {
	return n.hold(ctx, heldAtMost, chunked(n.path("/bulk"), ndjson, n.fields(), "{"), "1\r\n \r\n")
}

// slowBatch begins a long line.
func (n *neighbour) slowBatch(ctx context.Context) int {
	line := `{"Payload":"` + strings.Repeat("x", 1+n.rng.IntN(1<<20))
	return n.hold(ctx, heldAtMost, chunked(n.path("/batch"), ndjson, n.fields(), line), "1\r\nx\r\n")
}

func (n *neighbour) slowForm(ctx context.Context) int {
	head := bytes.Replace(request("/channel/"+neighbourID(n.who), formEncoded), []byte("POST"), []byte("PUT"), 1)
	return n.hold(ctx, heldAtMost, append(head, "Content-Length: 60000\r\n\r\ntoken="...), "t")
}

// largeID is a message of 4 MiB that becomes 24 MiB in JSON.
const largeID = "large"

// unread asks for a large message and does not read it.
func (n *neighbour) unread(ctx context.Context) int {
	body := bytes.Repeat([]byte{1}, 4<<20-1)
	if n.send(ctx, n.path("/broadcast"), "text/plain", body, n.fields("X-Broker-Message-ID", largeID, "X-Broker-Consumers",
		idleID)...) == 0 {
		return 0
	}
	get := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: broker\r\nX-Broker-Admin-Token: %s\r\n\r\n",
		n.path("/message/"+largeID), adminToken)
	return n.hold(ctx, heldAtMost/2, get, "")
}

// rest opens connections on which no request comes, some with its first byte.
func (n *neighbour) rest(ctx context.Context) int {
	return n.hold(ctx, heldAtMost, []byte("GET"[:n.rng.IntN(2)]), "")
}

func (n *neighbour) claims(ctx context.Context) int {
	fields := []string{"X-Broker-Channel-Token", n.plan.Token, "X-Broker-Consumer-Token", n.plan.Token}
	return n.hold(ctx, heldAtMost, whole(request(n.path("/consumer/"+waitingID+"/claim?wait=20s"), formEncoded, fields...),
		nil).bytes, "")
}

// requests waits for a response that comes after long.
func (n *neighbour) requests(ctx context.Context) int {
	head := request(n.path("/request"), "text/plain", n.fields("Prefer", "wait=50", "X-Broker-Consumers", lateID)...)
	return n.hold(ctx, heldAtMost/4, whole(head, []byte("x")).bytes, "")
}

func (n *neighbour) lateResponses(ctx context.Context) int  { return n.publish(ctx, lateID) }
func (n *neighbour) hangingResults(ctx context.Context) int { return n.publish(ctx, polledID) }
func (n *neighbour) hangingReplies(ctx context.Context) int { return n.publish(ctx, promptID) }

// publish sends a batch of messages for one consumer.
func (n *neighbour) publish(ctx context.Context, consumer string) int {
	lines := strings.Repeat(fmt.Sprintf(`{"Payload":"x","Consumers":[%q]}`+"\n", consumer), heldAtMost)
	if n.send(ctx, n.path("/batch"), ndjson, []byte(lines), n.fields()...) != http.StatusOK {
		return 0
	}
	pause(ctx, time.Minute)
	return heldAtMost
}

// slowFiles has brokers fetch files that drip.
func (n *neighbour) slowFiles(ctx context.Context) (held int) {
	body := fmt.Appendf(nil, `{"FileURL":"http://%s%s","Format":"ndjson"}`, n.plan.Inside, filePath)
	for range 3 {
		if n.send(ctx, n.path("/bulk"), "application/json", body, n.fields()...) == http.StatusAccepted {
			held++
		}
	}
	pause(ctx, time.Minute)
	return held
}

// wideLines sends lines of a million bytes that are all names.
func (n *neighbour) wideLines(ctx context.Context) int {
	line := `{"Payload":"x","Consumers":["` + idleID + `"` + strings.Repeat(`,"k"`, 250_000) + "]}\n"
	return n.wide(ctx, "/batch", ndjson, line)
}

func (n *neighbour) wideTemplates(ctx context.Context) int {
	body := fmt.Sprintf(`{"FileURL":"http://%s%s","Format":"csv","Template":{"Payload":"%s"}}`, n.plan.Inside, filePath,
		strings.Repeat("{{a}}", 140_000))
	return n.wide(ctx, "/bulk", "application/json", body)
}

// wide sends a body that is cheap to send and costs to read, again and again.
func (n *neighbour) wide(ctx context.Context, path, contentType, body string) (held int) {
	for ctx.Err() == nil {
		if n.send(ctx, n.path(path), contentType, []byte(body), n.fields()...) > 0 {
			held++
		}
		pause(ctx, 500*time.Millisecond)
	}
	return held
}

// send posts a body and returns the status of the answer, 0 without one.
func (n *neighbour) send(ctx context.Context, path, contentType string, body []byte, fields ...string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.plan.Doors[n.broker]+path,
		bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := n.http.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body) // the status decides
	_ = res.Body.Close()
	return res.StatusCode
}

// The paths of the server to which the URLs of neighbours lead.
const (
	latePath   = "/late"
	polledPath = "/polled"
	promptPath = "/prompt"
	filePath   = "/file"
)

// insideOf is that server: what it serves is late, hangs or drips, until ctx ends.
func insideOf(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	wait := func(r *http.Request, d time.Duration) {
		_, _ = io.Copy(io.Discard, r.Body) // from here on the context ends with the connection
		stop, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		<-stop.Done()
	}
	mux.HandleFunc(latePath, func(w http.ResponseWriter, r *http.Request) {
		wait(r, deliveryTimeout-300*time.Millisecond)
		_, _ = io.WriteString(w, "late") // its reader may have left
	})
	mux.HandleFunc(polledPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", resultPath+"x")
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc(promptPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "now") })
	hang := func(_ http.ResponseWriter, r *http.Request) { wait(r, time.Minute) }
	mux.HandleFunc(resultPath, hang)
	mux.HandleFunc(replyPath, hang)
	mux.HandleFunc(filePath, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil && ctx.Err() == nil {
			if _, err := io.WriteString(w, "{"); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush() // fails only on what is closed
			wait(r, dripEvery)
		}
	})
	return mux
}
