package push

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A Deliverer makes the targets of push deliveries: Senders, or the consumers of a simulation.
type Deliverer interface {
	// Target returns the target of a callback URL under a rule; protocol is "", "h2" or "auto". An error means
	// that the URL cannot be delivered to.
	Target(rule egress.Rule, rawURL, protocol string) (Target, error)
}

// A Target is one callback URL. The lane keeps it until the consumer's record changes, and uses it
// concurrently.
type Target interface {
	// Send makes one attempt and waits for its end, at the latest until the deadline. ctx ends when a stop
	// cuts the attempts under way: the error of the result is then egress.ErrClosed. Send keeps no part of
	// the attempt.
	Send(ctx context.Context, a Attempt, deadline time.Time) egress.Result
}

// An Attempt is what a sender is given. It changes none of it.
type Attempt struct {
	Message  *durable.Message
	Consumer *durable.Consumer
	Policy   *policy.Policy
	No       int  // 1-based
	Test     bool // of no job: see Dispatcher.Try

	delivery *delivery // nil in tests of other senders than those of this package
}

// Job is the text of the ID of the job, which is the same in each of its attempts.
func (a *Attempt) Job() string { return a.Message.ID.Job(a.Consumer.Position).String() }

// InTime counts an attempt in the rate of its consumer where it begins long after its claim. A sender calls
// it last before it sends. After an error it sends nothing, and returns Unsent of the error.
func (a *Attempt) InTime(ctx context.Context, deadline time.Time) error {
	if a.Test || a.delivery == nil {
		return nil
	}
	return a.delivery.inTime(ctx, deadline, false)
}

// Unsent is the result of an attempt that was not sent for a reason in the broker. It counts as no attempt.
func Unsent(err error) egress.Result { return egress.Result{Err: err, RetryAfter: -1, Local: true} }

// A Sender is a row of the table of senders: how jobs go to the callback URLs of some schemes.
type Sender struct {
	Schemes []string    // in small letters
	Kind    policy.Kind // which fields of a policy mean something to it, its own ones among them
	// Check refuses a callback URL of these schemes that it cannot send to. The error is a *problem.Problem, or
	// one of egress.Policy.CheckURL.
	Check  func(rawURL string) error
	Target func(rule egress.Rule, rawURL, protocol string) (Target, error)
	// Fits refuses a policy with which it cannot send, with a *policy.FieldError. nil: it can with each.
	Fits func(p *policy.Policy) error
	// Own says that the broker alone chooses callback URLs of these schemes. For clients they are schemes that
	// no sender has, so Check and Fits are not called.
	Own bool
}

// Absent is the row of schemes that another build of the program has a sender for. It refuses their URLs,
// and says which build that is.
func Absent(build string, schemes ...string) Sender {
	err := problem.Newf(400, "invalid_callback", "This broker is built without its sender for callbackUrls with %s: %s "+
		"has it.", strings.Join(schemes, ", "), build)
	return Sender{Schemes: schemes, Check: func(string) error { return err },
		Target: func(egress.Rule, string, string) (Target, error) { return nil, err }}
}

// Senders is the table of senders. It never changes.
type Senders struct {
	schemes []string
	of      map[string]*Sender
}

// NewSenders returns the table of these senders.
func NewSenders(rows ...Sender) *Senders {
	s := &Senders{of: map[string]*Sender{}}
	for i := range rows {
		for _, scheme := range rows[i].Schemes {
			s.of[scheme] = &rows[i]
			if rows[i].Kind != 0 && !rows[i].Own { // else it is absent, or not for clients
				s.schemes = append(s.schemes, scheme)
			}
		}
	}
	slices.Sort(s.schemes)
	return s
}

// sender returns the sender of a callback URL that a client chose; the error is a *problem.Problem.
func (s *Senders) sender(rawURL string) (*Sender, error) {
	found, err := s.any(rawURL)
	if err == nil && found.Own {
		return nil, s.unknown()
	}
	return found, err
}

// any is sender for a callback URL that the broker may have chosen.
func (s *Senders) any(rawURL string) (*Sender, error) {
	scheme, _, _ := strings.Cut(rawURL, ":")
	if found := s.of[strings.ToLower(scheme)]; found != nil {
		return found, nil
	}
	return nil, s.unknown()
}

func (s *Senders) unknown() error {
	return problem.New(400, "invalid_callback", "The callbackUrl must be a URL with one of the schemes that this "+
		"broker has a sender for: "+strings.Join(s.schemes, ", ")+".")
}

// Kind returns the kind of the sender of a callback URL; 0: there is none.
func (s *Senders) Kind(rawURL string) policy.Kind {
	if found, err := s.sender(rawURL); err == nil {
		return found.Kind
	}
	return 0
}

// Check refuses a callback URL that no sender can send to. The error is that of Sender.Check.
func (s *Senders) Check(rawURL string) error {
	found, err := s.sender(rawURL)
	if err != nil {
		return err
	}
	return found.Check(rawURL)
}

// Fits refuses a policy with which the sender of a callback URL cannot send. The error is that of Sender.Fits.
func (s *Senders) Fits(rawURL string, p *policy.Policy) error {
	if found, err := s.sender(rawURL); err == nil && found.Fits != nil {
		return found.Fits(p)
	}
	return nil
}

// Target is the method of Deliverer.
func (s *Senders) Target(rule egress.Rule, rawURL, protocol string) (Target, error) {
	found, err := s.any(rawURL)
	if err != nil {
		return nil, err
	}
	return found.Target(rule, rawURL, protocol)
}
