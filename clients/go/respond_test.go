package penstock

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A scriptedBroker has jobs, each for one claim, and answers reports. It keeps what it was sent.
type scriptedBroker struct {
	mu      sync.Mutex
	jobs    []string // JSON of a claimed job
	answer  func(update map[string]any) string
	updates []map[string]any
	others  []string // requests on other routes
}

func (b *scriptedBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/claim"):
		jobs := ""
		if len(b.jobs) > 0 {
			jobs, b.jobs = b.jobs[0], b.jobs[1:]
		}
		_, _ = io.WriteString(w, `{"Result":[`+jobs+`]}`)
	case strings.HasSuffix(r.URL.Path, "/jobs"):
		var q struct{ Updates []map[string]any }
		_ = json.Unmarshal(body, &q)
		var results []string
		for _, u := range q.Updates {
			b.updates = append(b.updates, u)
			results = append(results, `{"ID":"`+u["ID"].(string)+`",`+b.answer(u)+`}`)
		}
		_, _ = io.WriteString(w, `{"Result":[`+strings.Join(results, ",")+`]}`)
	default:
		b.others = append(b.others, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	}
}

func (b *scriptedBroker) reports() []map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]map[string]any{}, b.updates...)
}

func claimedJob(id, lease, attempt string) string {
	return `{"ID":"` + id + `","Lease":"` + lease + `","Attempt":` + attempt +
		`,"Message":{"MessageID":"m","Payload":"hello","Headers":{}}}`
}

// The response of a job that was done goes along with its report, also when the job comes again because
// the report was refused. Where the consumer takes none, the job is reported without it.
func TestAResponseGoesAlongWithTheReport(t *testing.T) {
	b := &scriptedBroker{jobs: []string{claimedJob("a", "1", "1"), claimedJob("a", "2", "2"),
		claimedJob("off", "3", "1")}}
	b.answer = func(u map[string]any) string {
		switch {
		case u["Lease"] == "1":
			return `"Status":409,"code":"lease_lost"`
		case u["ID"] == "off" && u["Response"] != nil:
			return `"Status":400,"code":"invalid_response"`
		}
		return `"Status":202`
	}
	c := to(t, b.ServeHTTP)
	w := worker(t, c, "q", WorkerOptions{})
	var calls atomic.Int32
	w.HandleOther(func(ctx context.Context, d *Delivery) error {
		calls.Add(1)
		if err := d.Respond(ctx, "a/b\n", nil); err == nil {
			t.Error("a content type with a line")
		}
		return d.Respond(ctx, "text/plain", []byte("<re: hello>"))
	})
	working(t, w)
	eventually(t, "the reports", func() bool { return len(b.reports()) == 4 })
	for i, u := range b.reports() {
		along := u["Response"] == "<re: hello>" && u["ResponseType"] == "text/plain"
		if along != (i < 3) || i == 3 && u["Response"] != nil || u["NextState"] != "DELIVERED" {
			t.Errorf("%d: %v", i, u)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if calls.Load() != 2 || len(b.others) > 0 {
		t.Fatal(calls.Load(), b.others)
	}
}

func TestResponsesOfAnyBytesAndSizeAreStored(t *testing.T) {
	c, q := real(t)
	if _, err := c.keys(t.Context(), role{channel: q, consumer: q}); err != nil {
		t.Fatal(err)
	}
	put(t, c, consumerPath(q, q), "responses=store&responseMaxBytes=1048576")
	w := worker(t, c, q, WorkerOptions{Concurrency: 3})
	bodies := map[string][]byte{"bytes": {0xff, 0}, "empty": {}, "large": bytes.Repeat([]byte("x"), mostResponse)}
	w.HandleOther(func(ctx context.Context, d *Delivery) error {
		return d.Respond(ctx, "application/octet-stream", bodies[d.MessageID])
	})
	working(t, w)
	for id, body := range bodies {
		r, err := c.Request(t.Context(), q, Message{ID: id}, 30*time.Second)
		if err != nil || !bytes.Equal(r.Body, body) || r.ContentType != "application/octet-stream" {
			t.Fatal(id, r, err)
		}
	}
}

// What is remembered of refused reports is bounded, in jobs and in the bytes of their responses.
func TestTheMemoryOfJobsThatWereDoneIsBounded(t *testing.T) {
	var k knownDone
	body := strings.Repeat("x", mostResponse-100)
	for i := range 2 * mostKnown {
		d := &Delivery{ID: newID(), Attempt: 1}
		if i%2 == 0 {
			r, err := responseOf("text/plain", []byte(body))
			if err != nil || r == nil {
				t.Fatal(r, err)
			}
			d.response = r
		}
		k.add(d)
		k.reported(d, false)
		if k.bytes > mostKnownBytes || len(k.refused) > mostKnown || len(k.done) > mostKnown {
			t.Fatal(k.bytes, len(k.refused), len(k.done))
		}
	}
	for len(k.refused) > 0 {
		k.forget(k.refused[0])
		k.refused = k.refused[1:]
	}
	if k.bytes != 0 || len(k.done) != 0 {
		t.Fatal(k.bytes, k.done)
	}
}
