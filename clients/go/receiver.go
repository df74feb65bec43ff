package penstock

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Gone is what a handler of a Receiver returns so that the broker stops to deliver: 410.
//
//lint:ignore ST1012 it reads as in the other clients: return penstock.Gone
var Gone = errors.New("penstock: the consumer is gone")

// TooManyRequests returns an error by which a handler of a Receiver asks the broker to send nothing for a
// while: 429 with Retry-After. The attempt counts.
func TooManyRequests(retryAfter time.Duration) error { return &slower{retryAfter} }

type slower struct{ after time.Duration }

func (s *slower) Error() string {
	return fmt.Sprintf("penstock: too many requests, again in %v", s.after)
}

// ReceiverOptions are the settings of a Receiver. It needs Secrets or Token.
type ReceiverOptions struct {
	// Secrets are the signing secrets of the consumer, whsec_ and base64: the new one and the one before,
	// while it is changed. Each request must have a signature by one of them.
	Secrets []string
	// Token is the consumer's: each request must have it in X-Broker-Consumer-Token.
	Token   string
	Window  time.Duration // how far the time of a signature may be off; 5 min
	MaxBody int64         // bytes; 4 MiB
	Seen    Store         // remembers what was done; nil: the last 100 000 in memory
	Logger  *slog.Logger  // nil: slog.Default()
}

// A Store remembers the deliveries that were done, so that a repeated one is acknowledged without being
// done again. Several processes behind one address share one. A key has up to 800 bytes.
type Store interface {
	// Seen reports whether the key was done. An error fails the attempt, and the broker sends it again.
	Seen(ctx context.Context, key string) (bool, error)
	// Done remembers the key. It is called when the handler has returned nil. The broker repeats a
	// delivery for BROKER_RETRY_BACKOFF, usually minutes, and after that only if somebody redrives it.
	Done(ctx context.Context, key string) error
}

// A Received is a delivery to a push consumer.
type Received struct {
	Channel, Consumer string // "" with identity=minimal
	MessageID         string // the same at every attempt
	JobID, ProducerID string
	Attempt           int // from 1; 0 with identity=minimal
	Priority          int
	Task              string
	Replay            string // of a replay: its ID
	Payload           []byte // as it came: ContentEncoding is not undone
	ContentType       string
	Header            http.Header // of the request

	body        []byte
	contentType string
}

// JSON decodes the payload.
func (m *Received) JSON(to any) error { return json.Unmarshal(m.Payload, to) }

// Respond sets what the delivery is answered, where the consumer has responses on.
func (m *Received) Respond(contentType string, body []byte) {
	m.contentType, m.body = contentType, body
}

// A Receiver is an http.Handler for deliveries to push consumers. It answers 2xx only after the handler has
// returned nil: 401 to a request that is not signed, or too old, 404 to a channel without a handler, 410
// for Gone, 429 for TooManyRequests, and 500 for every other error.
type Receiver struct {
	o        ReceiverOptions
	secrets  [][]byte
	handlers map[string]func(context.Context, *Received) error

	mu    sync.Mutex
	under map[string]bool // keys of deliveries under way
}

// NewReceiver makes a receiver. Secrets that cannot be read are an error.
func NewReceiver(o ReceiverOptions) (*Receiver, error) {
	r := &Receiver{o: o, handlers: map[string]func(context.Context, *Received) error{}, under: map[string]bool{}}
	for _, secret := range o.Secrets {
		text, ok := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 {
			return nil, errors.New("penstock: a signing secret is whsec_ and the base64 of 24 bytes or more")
		}
		r.secrets = append(r.secrets, key)
	}
	if len(r.secrets) == 0 && o.Token == "" {
		return nil, errors.New("penstock: a receiver needs the signing secret or the token of its consumer")
	}
	if r.o.Window == 0 {
		r.o.Window = 5 * time.Minute
	}
	if r.o.MaxBody == 0 {
		r.o.MaxBody = 4 << 20
	}
	if r.o.Seen == nil {
		r.o.Seen = &memory{}
	}
	if r.o.Logger == nil {
		r.o.Logger = slog.Default()
	}
	return r, nil
}

// On registers the handler of a channel; "" is for every channel without one. Call it before the first
// request. A handler may see a message twice after a crash, with the same MessageID.
func (r *Receiver) On(channel string, f func(context.Context, *Received) error) {
	r.handlers[channel] = f
}

// ServeHTTP takes one delivery.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "deliveries are POSTs", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.o.MaxBody))
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "the body cannot be read", status)
		return
	}
	if why := r.verify(req.Header, body, time.Now()); why != "" {
		http.Error(w, why, http.StatusUnauthorized)
		return
	}
	m := received(req.Header, body)
	f := r.handlers[m.Channel]
	if f == nil {
		f = r.handlers[""]
	}
	if f == nil && m.Channel == "" && len(r.handlers) == 1 { // identity=minimal names no channel
		for _, f = range r.handlers {
		}
	}
	if f == nil {
		http.Error(w, "no handler for this channel", http.StatusNotFound)
		return
	}
	if req.Header.Get("X-Broker-Test") == "true" && bytes.Contains(body, []byte(`"Test":true`)) {
		w.WriteHeader(http.StatusNoContent) // verified, and that is all that was asked
		return
	}
	r.answer(w, m, r.once(req.Context(), f, m))
}

// verify returns why a request is not one of the broker, "" if it is.
func (r *Receiver) verify(h http.Header, body []byte, now time.Time) string {
	if r.o.Token != "" && subtle.ConstantTimeCompare([]byte(h.Get("X-Broker-Consumer-Token")), []byte(r.o.Token)) != 1 {
		return "the token of the consumer is missing or wrong"
	}
	if len(r.secrets) == 0 {
		return ""
	}
	id, at := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if id == "" || err != nil {
		return "the signature is missing"
	}
	if age := now.Sub(time.Unix(seconds, 0)); age.Abs() > r.o.Window {
		return "the signature is of another time"
	}
	for _, signature := range strings.Fields(h.Get("webhook-signature")) {
		text, ok := strings.CutPrefix(signature, "v1,")
		sum, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil {
			continue
		}
		for _, key := range r.secrets {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(id + "." + at + "."))
			mac.Write(body)
			if hmac.Equal(mac.Sum(nil), sum) {
				return ""
			}
		}
	}
	return "the signature does not match"
}

// received is a request as a handler gets it.
func received(h http.Header, body []byte) *Received {
	m := &Received{Channel: h.Get("X-Broker-Channel-ID"), Consumer: h.Get("X-Broker-Consumer-ID"),
		MessageID: h.Get("X-Broker-Message-ID"), JobID: h.Get("X-Broker-Job-ID"), ProducerID: h.Get("X-Broker-Producer-ID"),
		Task: h.Get("X-Broker-Task"), Replay: h.Get("X-Broker-Replay"), Payload: body, ContentType: h.Get("Content-Type"),
		Header: h}
	if m.MessageID == "" {
		m.MessageID = h.Get("webhook-id")
	}
	m.Attempt, _ = strconv.Atoi(h.Get("X-Broker-Attempt"))
	m.Priority, _ = strconv.Atoi(h.Get("X-Broker-Message-Priority"))
	return m
}

// errUnderWay: the broker has given up on a delivery that is still being done, and sends it again.
var errUnderWay = errors.New("penstock: the delivery is under way")

// once calls the handler, unless the delivery was done before.
func (r *Receiver) once(ctx context.Context, f func(context.Context, *Received) error, m *Received) (err error) {
	key := strings.Join([]string{m.Channel, m.Consumer, m.MessageID, m.Replay}, "\n")
	if m.MessageID == "" {
		return r.call(ctx, f, m)
	}
	r.mu.Lock()
	under := r.under[key]
	r.under[key] = true
	r.mu.Unlock()
	if under {
		return errUnderWay
	}
	defer func() {
		r.mu.Lock()
		delete(r.under, key)
		r.mu.Unlock()
	}()
	seen, err := r.o.Seen.Seen(ctx, key)
	if err != nil || seen {
		return err
	}
	if err = r.call(ctx, f, m); err == nil {
		// Also where the broker has given up on the request meanwhile.
		if lost := r.o.Seen.Done(context.WithoutCancel(ctx), key); lost != nil {
			r.o.Logger.Error("penstock: a delivery was done and cannot be remembered: it may be done twice",
				"message", m.MessageID, "error", lost)
		}
	}
	return err
}

// call calls a handler. A panic is its error.
func (r *Receiver) call(ctx context.Context, f func(context.Context, *Received) error, m *Received) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.o.Logger.Error("penstock: a handler panicked", "message", m.MessageID, "panic", p, "stack", string(debug.Stack()))
			err = errors.New("the handler panicked")
		}
	}()
	return f(ctx, m)
}

// answer sends what a handler has returned. The broker keeps the first KiB of a failure for its operator.
func (r *Receiver) answer(w http.ResponseWriter, m *Received, err error) {
	slow, status := (*slower)(nil), http.StatusInternalServerError
	switch {
	case err == nil && m.body == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case err == nil:
		w.Header().Set("Content-Type", m.contentType)
		_, _ = w.Write(m.body)
		return
	case errors.Is(err, Gone):
		status = http.StatusGone
	case errors.Is(err, errUnderWay):
		status = http.StatusTooEarly
	case errors.As(err, &slow):
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int((slow.after+time.Second-1)/time.Second)))
	default:
		r.o.Logger.Warn("penstock: a delivery failed", "message", m.MessageID, "attempt", m.Attempt, "error", err)
	}
	http.Error(w, cut(err.Error(), mostDetail), status)
}

// remembered is how many deliveries memory keeps, at least.
const remembered = 100_000

// memory is the Store of one process: two generations of keys.
type memory struct {
	mu          sync.Mutex
	young, aged map[string]bool
}

func (m *memory) Seen(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.young[key] || m.aged[key], nil
}

func (m *memory) Done(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young == nil || len(m.young) >= remembered {
		m.young, m.aged = map[string]bool{}, m.young
	}
	m.young[key] = true
	return nil
}
