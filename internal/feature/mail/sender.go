package mail

import (
	"context"
	"errors"
	"strings"
	"sync"
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
	hurry  chan struct{} // closed by Hurry
	once   sync.Once

	mu   sync.Mutex
	open map[mailbox]*collection // of the mails that take more jobs
}

// New returns a sender.
func New(o Options) *Sender {
	return &Sender{o: o, places: share.New(share.Options{Name: "mails", Most: mostAtOnce}), hurry: make(chan struct{}),
		open: map[mailbox]*collection{}}
}

// Hurry sends what waits for further jobs, and lets none wait from now on: the broker stops.
func (s *Sender) Hurry() { s.once.Do(func() { close(s.hurry) }) }

// Bounds returns what the mails under way share.
func (s *Sender) Bounds() []*share.Bound { return []*share.Bound{s.places} }

// Row is the sender's row of the table.
func (s *Sender) Row() push.Sender {
	return push.Sender{Schemes: []string{scheme}, Kind: policy.ByMail, Check: s.check,
		Fits: fits, Target: func(_ egress.Rule, rawURL, _ string) (push.Target, error) {
			to, err := s.receivers(rawURL)
			if err != nil {
				return nil, err
			}
			return &target{s, to, rawURL}, nil
		}}
}

// Own is the row of a scheme of the broker itself, whose mails go to the addresses of a setting, whatever their
// domains are; none: the setting is missing.
func (s *Sender) Own(scheme, setting string, to []string) push.Sender {
	return push.Sender{Schemes: []string{scheme}, Kind: policy.ByMail, Own: true,
		Target: func(_ egress.Rule, rawURL, _ string) (push.Target, error) {
			switch {
			case s.o.Server == nil:
				return nil, errors.New("this broker has no " + s.o.Missing)
			case len(to) == 0:
				return nil, errors.New("this broker has no " + setting)
			}
			return &target{s, to, rawURL}, nil
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
	to  []string
	url string
}

// errPlaces is the reason of an attempt whose time passed while others took all connections.
var errPlaces = errors.New("all connections to the mail server are in use")

// Send makes one attempt: a mail to all addresses, which the server takes for all of them or for none.
func (t *target) Send(life context.Context, a push.Attempt, deadline time.Time) egress.Result {
	e := &entry{a: &a, result: push.Unsent(errUnsent)}
	if a.Policy.Collect.N > 1 && !a.Test {
		t.collect(life, e, deadline)
	} else {
		t.send(life, deadline, []*entry{e})
	}
	return e.result
}

// An entry is an attempt and its end.
type entry struct {
	a      *push.Attempt
	result egress.Result
}

// send makes the attempts of jobs that share a mail. If the server refuses that, each gets one of its own, so that one
// job makes no dead letters of others.
func (t *target) send(life context.Context, deadline time.Time, all []*entry) {
	ctx, cancel := context.WithDeadline(life, deadline)
	defer cancel()
	who := share.Consumer(all[0].a.Consumer.Account())
	if err := t.places.Wait(ctx, who, 1); err != nil {
		for _, e := range all {
			e.result = push.Unsent(errPlaces)
		}
		return
	}
	defer t.places.Give(who, 1)
	var counted []*entry
	for _, e := range all {
		if err := e.a.InTime(ctx, deadline); err != nil {
			e.result = push.Unsent(err)
			continue
		}
		counted = append(counted, e)
	}
	if len(counted) == 0 {
		return
	}
	res := t.hand(life, ctx, deadline, counted)
	for _, e := range counted {
		e.result = res
		if res.Reply == egress.Refused && len(counted) > 1 {
			e.result = t.hand(life, ctx, deadline, []*entry{e})
		}
	}
}

// hand hands a mail in.
func (t *target) hand(life, ctx context.Context, deadline time.Time, of []*entry) egress.Result {
	begun := time.Now()
	said, err := t.o.Server.Send(ctx, time.Until(deadline), t.letter(of))
	res := took(said)
	if err != nil {
		res = failed(life, ctx, err)
	}
	res.Took = time.Since(begun)
	return res
}
