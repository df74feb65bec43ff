package ctl

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

// A forwarder POSTs jobs as the broker would to a push consumer.
type forwarder struct {
	http            *http.Client
	url, channel    string
	consumer, token string   // that the requests name
	headers         []string // NAME: VALUE, of the policy of --as
	minimal         bool
	secret          []byte // signs; nil: nothing does
}

// A copied job is one that is forwarded.
type copied struct {
	job, message, producer, contentType, coding, replay string
	attempt, priority                                   int
	headers                                             map[string]string
	payload                                             []byte
}

// An attempt is what became of a request.
type attempt struct {
	At           time.Time
	MessageID    string
	JobID        string
	Attempt      int
	Status       int    `json:",omitempty"`
	Error        string `json:",omitempty"`
	Milliseconds int64

	retryAfter time.Duration
	number     int   // of the job, where it can be sent again
	again      bool  // it is sent again
	said       error // why it could not be recorded or printed
}

// plainForwarder is the one of a consumer that is as listen makes it.
func (l *listening) plainForwarder() (*forwarder, error) {
	f := &forwarder{url: l.forward, channel: l.channel, consumer: l.consumer, http: &http.Client{Timeout: l.timeout,
		Transport:     &http.Transport{DisableCompression: true}, // no proxy: the requests carry a token
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	text, err := l.s.environment("PENSTOCK_SIGNING_SECRET")
	if err == nil && text != "" {
		if f.secret, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_")); err != nil {
			err = local("PENSTOCK_SIGNING_SECRET must be whsec_ and base64")
		}
	}
	return f, err
}

// newForwarder reads what the requests shall have of the consumer of --as.
func (l *listening) newForwarder(ctx context.Context, m *penstock.Manager) (*forwarder, error) {
	f, err := l.plainForwarder()
	if err != nil || l.as == "" {
		return f, err
	}
	if err := id("consumer", l.as); err != nil {
		return nil, err
	}
	r, err := m.Get(ctx, penstock.ConsumerPath(l.channel, l.as))
	if err != nil {
		return nil, err
	}
	f.consumer, f.token, f.minimal = r.ID, r.Token, r.Policy["Identity"] == "minimal"
	f.headers = strings.Split(r.Policy["Headers"], "\n")
	if r.Policy["SigningSecret"] != "" && f.secret == nil {
		return nil, local("%s signs what it is sent, and the broker does not show its secret: PENSTOCK_SIGNING_SECRET has it",
			l.as)
	}
	return f, nil
}

func copyOf(d *penstock.Delivery) copied {
	return copied{job: d.ID, message: d.MessageID, producer: d.ProducerID, contentType: d.ContentType,
		coding: d.ContentEncoding, attempt: d.Attempt, priority: d.Priority, headers: d.Headers, payload: d.Payload}
}

// mostAnswer is how much of an answer is read, in bytes, so that its connection can be used again.
const mostAnswer = 64 << 10

// post sends a job.
func (f *forwarder) post(ctx context.Context, j copied) (a attempt) {
	a = attempt{At: time.Now(), MessageID: j.message, JobID: j.job, Attempt: j.attempt}
	defer func() { a.Milliseconds = time.Since(a.At).Milliseconds() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(j.payload))
	if err != nil {
		a.Error = "the request cannot be made"
		return a
	}
	f.fill(req.Header, j, a.At)
	res, err := f.http.Do(req)
	if err != nil {
		a.Error = inWords(err)
		return a
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, mostAnswer))
	if a.Status = res.StatusCode; err != nil {
		a.Error = "the answer has no end: " + inWords(err)
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.retryAfter = min(time.Duration(max(seconds, 0))*time.Second, time.Hour)
	}
	return a
}

// inWords is an error of a request without the URL, which may have a secret.
func inWords(err error) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		if outer.Timeout() {
			return "no answer in time"
		}
		err = outer.Err
	}
	return err.Error()
}

// fill sets the headers, as hotpath/push does.
func (f *forwarder) fill(h http.Header, j copied, at time.Time) {
	var names []string
	for name, value := range j.headers {
		own := strings.HasPrefix(strings.ToLower(name), "x-broker-")
		if own && f.minimal {
			continue
		}
		if h.Set(name, value); !own {
			names = append(names, name)
		}
	}
	h.Set("Content-Type", cmp.Or(j.contentType, "application/octet-stream"))
	h.Set("User-Agent", "Penstock-listen")
	if j.coding != "" {
		h.Set("Content-Encoding", j.coding)
	}
	if f.minimal || f.secret != nil {
		seconds := strconv.FormatInt(at.Unix(), 10)
		h.Set("webhook-id", j.message)
		h.Set("webhook-timestamp", seconds)
		if f.secret != nil {
			mac := hmac.New(sha256.New, f.secret)
			mac.Write([]byte(j.message + "." + seconds + "."))
			mac.Write(j.payload)
			h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		}
	}
	if !f.minimal {
		slices.Sort(names)
		for name, value := range map[string]string{"Channel-ID": f.channel, "Consumer-ID": f.consumer,
			"Consumer-Token": f.token, "Producer-ID": j.producer, "Message-ID": j.message, "Job-ID": j.job, "Replay": j.replay,
			"Message-Priority": strconv.Itoa(j.priority), "Attempt": strconv.Itoa(j.attempt),
			"Metadata-Headers": strings.Join(names, ",")} {
			if value != "" {
				h.Set("X-Broker-"+name, value)
			}
		}
		h.Set("X-Request-ID", j.job+"-"+strconv.Itoa(j.attempt))
	}
	for _, line := range f.headers {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Set(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
}

// mostDead is how many dead letters are forwarded.
const mostDead = 1000

// forwardDead sends copies of the dead letters of a consumer, the oldest message first, and changes nothing.
func (l *listening) forwardDead(ctx context.Context, m *penstock.Manager) error {
	if err := id("consumer", l.fromDead); err != nil {
		return err
	}
	letters, err := m.DeadLetters(ctx, l.channel, l.fromDead, nil, mostDead)
	if err != nil {
		return err
	}
	for _, letter := range letters {
		var msg struct {
			ID, Payload, PayloadEncoding, ContentType, ContentEncoding string
			Priority                                                   int
			Headers                                                    map[string]string
		}
		if err := m.Read(ctx, letter.MessageURL, nil, &msg); isGone(err) {
			continue
		} else if err != nil {
			return err
		}
		j := copied{job: letter.ID, message: msg.ID, contentType: msg.ContentType, coding: msg.ContentEncoding,
			attempt: letter.Attempts, priority: msg.Priority, headers: msg.Headers, payload: []byte(msg.Payload)}
		if msg.PayloadEncoding == "base64" {
			if j.payload, err = base64.StdEncoding.DecodeString(msg.Payload); err != nil {
				return local("the payload of %s cannot be read", msg.ID)
			}
		}
		if err := l.deliver(ctx, j).said; err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
