package reports

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/getsentry/sentry-go"
	"github.com/prometheus/client_golang/prometheus"
)

// Prefix begins the names of the variables of the SDK.
const Prefix = "SENTRY_"

const (
	// mostPerMinute and window bound the reports of a process; of one kind there is one in a window.
	mostPerMinute = 30
	window        = time.Minute
	// mostKinds bounds what is remembered of a window.
	mostKinds = 1000
	// mostText bounds a text in a report, bytes.
	mostText = 4 << 10
	// closeWithin bounds the wait for the last reports.
	closeWithin = 2 * time.Second
)

// Settings say where reports go. The zero value sends none.
type Settings struct {
	DSN         string // a secret
	Environment string
}

var errDSN = errors.New("must be a DSN like https://KEY@sentry.example/1")

// Check refuses a DSN that is none. Its error does not show it.
func (s *Settings) Check() error {
	if s.DSN == "" {
		return nil
	}
	if _, err := sentry.NewDsn(s.DSN); err != nil {
		return errDSN
	}
	return nil
}

// Counted counts reports by what became of them. A broker registers it.
var Counted = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "penstock_error_reports_total",
	Help: "Reports to the server of SENTRY_DSN: handed to its client, or dropped because there were too many."},
	[]string{"outcome"})

// A Reporter sends reports. Its methods do not block.
type Reporter struct {
	client *sentry.Client

	mu    sync.Mutex
	began time.Time // of the window
	sent  int       // in it
	kinds map[string]bool
}

// New returns a reporter, or nil without a DSN. version is the release. Nothing is asked over the network here.
func New(s Settings, version string) (*Reporter, error) {
	if s.DSN == "" {
		return nil, nil
	}
	environment := s.Environment
	if environment == "" {
		environment = "production" // the default of Sentry
	}
	client, err := sentry.NewClient(sentry.ClientOptions{Dsn: s.DSN, Release: version, Environment: environment,
		MaxBreadcrumbs: -1, Integrations: func([]sentry.Integration) []sentry.Integration { return nil },
		BeforeSend: func(e *sentry.Event, _ *sentry.EventHint) *sentry.Event {
			e.Request, e.User, e.Modules = nil, sentry.User{}, nil // whatever the SDK thinks of
			return e
		}})
	if err != nil {
		return nil, errDSN
	}
	return &Reporter{client: client, kinds: map[string]bool{}}, nil
}

// Close waits for the reports under way, for a bounded time.
func (r *Reporter) Close() {
	if r != nil {
		r.client.Flush(closeWithin)
	}
}

// send hands an event over, unless there were too many.
func (r *Reporter) send(kind string, e *sentry.Event) {
	if !r.admit(kind) {
		Counted.WithLabelValues("dropped").Inc()
		return
	}
	Counted.WithLabelValues("sent").Inc()
	r.client.CaptureEvent(e, nil, nil)
}

func (r *Reporter) admit(kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.began) >= window {
		r.began, r.sent = now, 0
		clear(r.kinds)
	}
	if r.kinds[kind] || r.sent >= mostPerMinute || len(r.kinds) >= mostKinds {
		return false
	}
	r.kinds[kind] = true
	r.sent++
	return true
}

// A handler reports lines of the log before another handler writes them.
type handler struct {
	slog.Handler
	r          *Reporter
	attributes []slog.Attr
}

// Handler returns a handler that reports lines and passes them on.
func (r *Reporter) Handler(to slog.Handler) slog.Handler { return &handler{Handler: to, r: r} }

// Enabled also lets errors through that the log does not show.
func (h *handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || h.Handler.Enabled(ctx, l)
}

func (h *handler) Handle(ctx context.Context, line slog.Record) error {
	if line.Level >= slog.LevelWarn {
		h.report(&line)
	}
	if !h.Handler.Enabled(ctx, line.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, line)
}

func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attributes), h.r, append(h.attributes[:len(h.attributes):len(h.attributes)],
		attributes...)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.r, h.attributes}
}

// tags are the attributes of a line by which people search.
var tags = map[string]bool{"channel": true, "consumer": true, "producer": true, "message": true, "job": true,
	"request_id": true,
	"code":       true, "where": true, "status": true}

// TombstoneLine is the message of the line about a consumer that became DEAD.
const TombstoneLine = "a consumer is DEAD: too many of its attempts failed"

// failedRequest is the message of the line about a request that failed for a reason in the broker.
const failedRequest = "request failed"

// report reports a line of level error, and one about an answer 500.
func (h *handler) report(line *slog.Record) {
	about, found := sentry.Context{}, map[string]string{}
	status, panicked := int64(0), ""
	each := func(a slog.Attr) bool {
		text := cut(a.Value.Resolve().String())
		switch {
		case a.Key == "stack": // the exception has it
		case a.Key == "panic":
			panicked = text
		case tags[a.Key]:
			found[a.Key] = text
		default:
			about[a.Key] = text
		}
		if a.Key == "status" && a.Value.Kind() == slog.KindInt64 {
			status = a.Value.Int64()
		}
		return true
	}
	for _, a := range h.attributes {
		each(a)
	}
	line.Attrs(each)
	tombstone := line.Message == TombstoneLine
	if line.Level < slog.LevelError && !tombstone && (line.Message != failedRequest || status != 500) {
		return
	}
	e := sentry.NewEvent()
	e.Level, e.Message, e.Tags = sentry.LevelError, line.Message, found
	e.Timestamp = line.Time
	e.Contexts["broker"] = about
	kind := line.Message + " " + found["where"] + " " + found["code"]
	e.Tags["kind"] = "error"
	switch {
	case panicked != "":
		e.Tags["kind"], e.Message = "panic", ""
		e.Level = sentry.LevelFatal
		e.Exception = []sentry.Exception{{Type: "panic", Value: panicked, Stacktrace: sentry.NewStacktrace()}}
		kind += panicked
	case tombstone:
		e.Tags["kind"], e.Level = "tombstone", sentry.LevelWarning
		kind += found["channel"] + " " + found["consumer"]
		e.Fingerprint = []string{"tombstone", found["channel"], found["consumer"]}
	case status == 500:
		e.Tags["kind"] = "internal error"
		text, _ := about["error"].(string)
		kind += text
	}
	h.r.send(kind, e)
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), mostText)], "")
}
