package nats

import (
	"cmp"
	"context"
	"time"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Options assemble a Sender.
type Options struct {
	Client    *egress.Client // nil: the sender checks callback URLs only
	Callbacks egress.Policy  // which servers callbacks may name
	Idle      time.Duration  // of a connection that is not used; 0: a minute
	Greeting  time.Duration  // from the dial to the first message at most; 0: 10 s
	// Quiet is how long a server may say nothing while messages wait for an acknowledgement. It is then asked,
	// and has as long to answer. 0: 5 s.
	Quiet time.Duration
}

// A Sender sends the jobs of consumers with nats and tls callbacks. It is safe for concurrent use.
type Sender struct {
	o       Options
	servers *servers
}

// New returns a sender.
func New(o Options) *Sender {
	o.Idle = cmp.Or(o.Idle, time.Minute)
	o.Greeting = cmp.Or(o.Greeting, 10*time.Second)
	o.Quiet = cmp.Or(o.Quiet, 5*time.Second)
	return &Sender{o: o, servers: newServers(o)}
}

// Bounds returns what the consumers share.
func (s *Sender) Bounds() []*share.Bound { return []*share.Bound{s.servers.places} }

// Close ends the connections and waits for what reads them.
func (s *Sender) Close() { s.servers.close() }

// Row is the sender's row of the table.
func (s *Sender) Row() push.Sender {
	return push.Sender{Schemes: []string{plain, secure}, Kind: policy.ByNATS,
		Check: func(rawURL string) error {
			_, err := parse(rawURL, s.o.Callbacks)
			return err
		},
		Fits: func(p *policy.Policy) error {
			_, err := loginOf(p.Authorization)
			return err
		},
		Target: func(rule egress.Rule, rawURL, _ string) (push.Target, error) {
			to, err := parse(rawURL, s.o.Callbacks)
			if err != nil {
				return nil, err
			}
			return &target{s, rule, to}, nil
		}}
}

// mostTries bounds the connections of an attempt that ended before it had sent anything.
const mostTries = 3

// A target is the subject of one consumer.
type target struct {
	*Sender
	rule egress.Rule
	to   address
}

// Send makes one attempt: a message to the subject, and the acknowledgement of its stream.
func (t *target) Send(life context.Context, a push.Attempt, deadline time.Time) egress.Result {
	begun := time.Now()
	ctx, cancel := context.WithDeadline(life, deadline)
	defer cancel()
	res := t.send(ctx, &a, deadline)
	if life.Err() != nil && res.Status == 0 {
		res = egress.Result{Err: egress.ErrClosed, RetryAfter: -1, Sent: res.Sent}
	}
	res.Took = time.Since(begun)
	return res
}

func (t *target) send(ctx context.Context, a *push.Attempt, deadline time.Time) egress.Result {
	to := server{rule: t.rule, secure: t.to.secure, host: t.to.host, port: t.to.port,
		authorization: a.Policy.Authorization}
	m := message{subject: t.to.subject, head: head(a), payload: a.Message.Payload}
	for try := 1; ; try++ {
		l, err := t.servers.link(ctx, to)
		if err != nil {
			return unconnected(ctx, err)
		}
		if most := l.mostPayload.Load(); m.size() > most {
			return tooLarge(m.size(), most)
		}
		if try == 1 {
			if err := a.InTime(ctx, deadline); err != nil {
				return push.Unsent(err)
			}
		}
		said, sent, err := l.publish(ctx, deadline, &m)
		switch {
		case err == nil:
			return said.result()
		case sent || try == mostTries || ctx.Err() != nil || l.takes():
			return unanswered(ctx, err, sent)
		}
	}
}
