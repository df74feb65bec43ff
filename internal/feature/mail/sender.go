package mail

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// Options assemble a Sender.
type Options struct {
	Server    *Server  // nil: the installation has none, and mailto callbacks are refused
	Missing   string   // the setting that is to be set then
	Domains   []string // in small letters: those of receivers; none: any
	Catalogue *catalogue.Catalogue
}

// mostAtOnce bounds the connections to the mail server, which usually takes 20 to 50 of one client.
const mostAtOnce = 16

// A Sender sends the jobs of consumers with mailto callbacks. It is safe for concurrent use.
type Sender struct {
	o      Options
	places *share.Bound
}

// New returns a sender.
func New(o Options) *Sender {
	return &Sender{o: o, places: share.New(share.Options{Name: "mails", Most: mostAtOnce})}
}

// Bounds returns what the mails under way share.
func (s *Sender) Bounds() []*share.Bound { return []*share.Bound{s.places} }

// Row is the sender's row of the table.
func (s *Sender) Row() push.Sender {
	return push.Sender{Schemes: []string{scheme}, Kind: policy.ByMail, Check: s.check,
		Target: func(_ egress.Rule, rawURL, _ string) (push.Target, error) {
			to, err := s.receivers(rawURL)
			if err != nil {
				return nil, err
			}
			return &target{s, to}, nil
		}}
}

func (s *Sender) check(rawURL string) error {
	_, err := s.receivers(rawURL)
	return err
}

// receivers returns the addresses of a callback URL that mails may be sent to.
func (s *Sender) receivers(rawURL string) ([]string, error) {
	to, err := receivers(rawURL)
	switch {
	case err != nil:
		return nil, err
	case s.o.Server == nil:
		return nil, problem.New(400, "callback_refused", "This broker cannot send mails, because the setting "+
			s.o.Missing+" is missing.")
	case !allowed(to, s.o.Domains):
		return nil, problem.New(400, "callback_refused", "This broker may send mails to these domains only: "+
			strings.Join(s.o.Domains, ", ")+" (BROKER_MAIL_DOMAINS).")
	}
	return to, nil
}

// A target is the addresses of one consumer.
type target struct {
	*Sender
	to []string
}

// errPlaces is the reason of an attempt whose time passed while others took all connections.
var errPlaces = errors.New("all connections to the mail server are in use")

// Send makes one attempt: a mail to all addresses, which the server takes for all of them or for none.
func (t *target) Send(life context.Context, a push.Attempt, deadline time.Time) egress.Result {
	begun := time.Now()
	ctx, cancel := context.WithDeadline(life, deadline)
	defer cancel()
	who := share.Consumer(a.Consumer.Account())
	if err := t.places.Wait(ctx, who, 1); err != nil {
		return push.Unsent(errPlaces)
	}
	defer t.places.Give(who, 1)
	if err := a.InTime(ctx, deadline); err != nil {
		return push.Unsent(err)
	}
	said, err := t.o.Server.Send(ctx, time.Until(deadline), t.letter(&a))
	res := took(said)
	if err != nil {
		res = failed(life, ctx, err)
	}
	res.Took = time.Since(begun)
	return res
}
