package penstock

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// to returns a client of a server that f plays.
func to(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return at(t, Options{URL: s.URL, Timeout: 2 * time.Second, ProducerToken: "p-secret", ChannelToken: "c-secret",
		ConsumerToken: "k-secret"})
}

func at(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"code":"`+code+`","detail":"so it is"}`)
}

func TestSettingsComeFromTheEnvironmentAndFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PENSTOCK_URL", "http://broker.example/prefix/")
	t.Setenv("PENSTOCK_TOKEN", "team")
	t.Setenv("PENSTOCK_CHANNEL_TOKEN_FILE", file)
	t.Setenv("PENSTOCK_PRODUCER_ID", "shop")
	c := at(t, Options{ConsumerToken: "given"})
	if c.base != "http://broker.example/prefix" || c.o.ChannelToken != "from-a-file" || c.o.ProducerToken != "team" ||
		c.o.ConsumerToken != "given" || c.o.ProducerID != "shop" {
		t.Fatalf("%q %+v", c.base, c.o)
	}
	if c = at(t, Options{OnlyOptions: true}); c.base != defaultURL || c.o.ChannelToken != "" {
		t.Fatalf("%q %+v", c.base, c.o)
	}
	t.Setenv("PENSTOCK_CHANNEL_TOKEN", "twice")
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "both") {
		t.Fatal(err)
	}
}

func TestAURLWithCredentialsOrWithoutHostIsRefused(t *testing.T) {
	for _, url := range []string{"127.0.0.1:8080", "ftp://host/", "http://", "http://ann:secret@host/", "http://host/?a=b",
		"http://host/#x", "http://ho st/"} {
		if _, err := New(Options{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestRetryAfterIsReadByTheClockOfTheAnswer(t *testing.T) {
	date := "Mon, 02 Jan 2006 15:04:05 GMT" // hours or years off
	for text, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "1.5": 1500 * time.Millisecond, "-3": 0,
		"NaN": 0, "soon": 0, "99999999999": time.Hour, "Mon, 02 Jan 2006 15:04:35 GMT": 30 * time.Second,
		"Mon, 02 Jan 2006 15:00:00 GMT": 0} {
		if got := waitOf(http.Header{"Retry-After": {text}, "Date": {date}}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestWaitsAreRandomAndBounded(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		b := backoff{tries: 3}
		wait := b.next(0)
		seen[wait] = true
		if wait > firstBackoff<<3+time.Millisecond {
			t.Fatal(wait)
		}
	}
	late := backoff{tries: 60}
	if wait := late.next(0); len(seen) < 50 || wait > mostBackoff+time.Millisecond {
		t.Fatal(len(seen), wait)
	}
	if wait := late.next(10 * time.Second); wait < 10*time.Second {
		t.Fatal(wait)
	}
}

func TestIDsOfTheClientAscendAndHaveNoFormOfTheBrokers(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 100 {
		if id := newID(); !form.MatchString(id) {
			t.Fatal(id)
		}
	}
}

func TestAJobIsTheDocumentedJSON(t *testing.T) {
	for want, j := range map[string]Job{
		`{"task":"a","args":[],"kwargs":{},"meta":{}}`:                          {Task: "a"},
		`{"task":"a","args":[1,"<&>"],"kwargs":{"k":null},"meta":{"m":[true]}}`: {Task: "a", Args: []any{1, "<&>"}, Kwargs: map[string]any{"k": nil}, Meta: map[string]any{"m": []bool{true}}},
	} {
		m, err := j.message()
		if err != nil || string(m.Payload) != want || m.Task != "a" || m.ContentType != "application/json" {
			t.Errorf("%s %v", m.Payload, err)
		}
	}
	if _, err := (&Job{}).message(); err == nil {
		t.Error("a job without a task is taken")
	}
	if _, err := (&Job{Task: "a", Args: []any{make(chan int)}}).message(); err == nil {
		t.Error("a channel is JSON")
	}
}

func TestARefusalHasItsCodeAndNoToken(t *testing.T) {
	c := to(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.Header().Set("X-Request-Id", "r-1")
		problem(w, 403, "channel_token_mismatch")
	})
	_, err := c.Publish(t.Context(), "c", Message{})
	var e *Error
	if !errors.As(err, &e) || e.Status != 403 || e.Code != "channel_token_mismatch" || e.Detail != "so it is" ||
		e.RetryAfter != 3*time.Second || e.RequestID != "r-1" || e.Temporary() || CodeOf(err) != e.Code {
		t.Fatalf("%#v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
}

// What cannot be sent is an error at once.
func TestMessagesThatNoRequestCanCarryAreRefusedAtOnce(t *testing.T) {
	c := to(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for _, m := range []Message{{ID: "a\nb"}, {Headers: map[string]string{"a b": "c"}},
		{Headers: map[string]string{"": "c"}},
		{Headers: map[string]string{"A": "x\r\nHost: evil"}}, {Task: "\x00"},
		{Headers: map[string]string{"X-Broker-Channel-Token": "mine"}}} {
		if _, err := c.Publish(t.Context(), "c", m); err == nil || temporary(err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if _, err := c.Publish(t.Context(), "", Message{}); err == nil || temporary(err) {
		t.Error(err)
	}
}

// An answer that is lost, or none of a broker, is asked again with the same ID and body.
func TestAPublishIsRepeatedWithItsID(t *testing.T) {
	var tries atomic.Int32
	ids := make(chan string, 9)
	c := to(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		ids <- r.Header.Get("X-Broker-Message-ID") + string(body)
		switch tries.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			_, _ = io.WriteString(w, "<html>be right back</html>")
		case 3:
			problem(w, 503, "outcome_unknown")
		default:
			w.Header().Set("Location", "/channel/c/message/m")
			problem(w, 409, "duplicate_message_id")
		}
	})
	got, err := c.Publish(t.Context(), "c", Message{Payload: []byte("x")})
	if err != nil || !got.Duplicate || got.Location != "/channel/c/message/m" {
		t.Fatal(got, err)
	}
	first := <-ids
	for range 3 {
		if id := <-ids; id != first || len(id) != 37 {
			t.Fatal(id, first)
		}
	}
}

func TestALineWithoutAnAnswerGoesAgainAlone(t *testing.T) {
	var requests atomic.Int32
	c := to(t, func(w http.ResponseWriter, r *http.Request) {
		lines := json.NewDecoder(r.Body)
		n := requests.Add(1)
		for i := 0; ; i++ {
			var line struct{ MessageID string }
			if lines.Decode(&line) != nil {
				return
			}
			if n == 1 && i == 2 {
				return // the answer ends early
			}
			switch {
			case line.MessageID == "bad":
				_, _ = io.WriteString(w, `{"Status":400,"code":"invalid_payload","detail":"no"}`+"\n")
			case n == 1:
				_, _ = io.WriteString(w, `{"Status":503,"code":"outcome_unknown","detail":"perhaps"}`+"\n")
			default:
				_, _ = io.WriteString(w, `{"Status":201,"MessageID":"`+line.MessageID+`","Location":"/channel/c/message/x"}`+"\n")
			}
		}
	})
	results, err := c.PublishMany(t.Context(), "c", []Message{{ID: "a"}, {ID: "bad"}, {ID: "b"}, {ID: "d"}})
	if CodeOf(err) != "invalid_payload" || results[0].Err != nil || CodeOf(results[1].Err) != "invalid_payload" ||
		results[2].Err != nil || results[3].Err != nil || results[3].Location == "" || requests.Load() != 2 {
		t.Fatal(results, err, requests.Load())
	}
}

// Without tokens no message is sent, and none is said to be stored.
func TestMessagesWithoutTokensAreNotStored(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	for _, url := range []string{server.URL, "http://127.0.0.1:1"} {
		c, err := New(Options{URL: url, Tries: 1})
		if err != nil {
			t.Fatal(err)
		}
		results, err := c.PublishMany(t.Context(), "orders", []Message{{Payload: []byte("x")}, {Payload: []byte("y")}})
		if err == nil || len(results) != 2 || results[0].Err == nil || results[1].Err == nil {
			t.Fatalf("%s: %v %v", url, results, err)
		}
		if _, err := c.EnqueueMany(t.Context(), "orders", []Job{{Task: "t"}}); err == nil {
			t.Fatal("a job that was not sent is said to be stored")
		}
	}
}

func TestEndlessAndSlowAnswersEnd(t *testing.T) {
	for name, play := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for block := make([]byte, 1<<20); r.Context().Err() == nil; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"never": func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"dripping": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := to(t, play)
			_, err := c.once(context.Background(), call{method: "GET", path: "/"})
			if !temporary(err) {
				t.Fatal(err)
			}
		})
	}
}

func TestManagementThatIsClosedSaysWhatToSet(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem(w, 401, "token_missing")
	}))
	defer s.Close()
	c := at(t, Options{URL: s.URL, AdminToken: "admin-secret"})
	_, err := c.Enqueue(t.Context(), "q", Job{Task: "a"})
	if CodeOf(err) != "token_missing" || !strings.Contains(err.Error(), "PENSTOCK_CHANNEL_TOKEN") ||
		strings.Contains(err.Error(), "admin-secret") {
		t.Fatal(err)
	}
}

func TestAWorkerWithWrongOptionsIsRefused(t *testing.T) {
	c := at(t, Options{})
	for _, o := range []WorkerOptions{{Concurrency: -1}, {Concurrency: 501}, {Lease: time.Millisecond},
		{Lease: 1500 * time.Millisecond}, {Wait: time.Minute}, {Wait: time.Millisecond}} {
		if _, err := c.Worker("q", o); err == nil {
			t.Errorf("%+v", o)
		}
	}
	if _, err := c.Worker("", WorkerOptions{}); err == nil {
		t.Error("no queue")
	}
	w, err := c.Worker("q", WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("no handler")
	}
}

func TestTheWorkerSaysWhoItIsInOneHeader(t *testing.T) {
	w, err := at(t, Options{}).Worker("q", WorkerOptions{Name: "a;b|c\n", Version: "1.2", Concurrency: 3})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("one", nil)
	if got := w.header(); got != "a-b-c-; version=1.2; slots=3; tasks=one" {
		t.Fatal(got)
	}
	w.Handle("two,three", nil)
	if got := w.header(); got != "a-b-c-; version=1.2; slots=3" {
		t.Fatal(got)
	}
}
