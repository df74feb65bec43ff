package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// listenPrefix begins the ID of each consumer that listen makes. It deletes no other ones.
	listenPrefix = "listen-"
	// listenLife is how long jobs wait for listen, and how long a consumer that nobody uses stays.
	listenLife = 24 * time.Hour
)

// A listening forwards the jobs of a pull consumer to a URL of this machine.
type listening struct {
	s                                  *session
	channel, forward, name, as, filter string
	fromDead                           string
	since, timeout, until              time.Duration
	concurrency                        int
	remove                             bool
	output, record, play               string
	consumer                           string
	to                                 *forwarder
	kept                               kept
	recorder                           *recorder
}

func (s *session) listen() *cobra.Command {
	l := &listening{s: s}
	c := leaf{use: "listen --channel CHANNEL --forward URL",
		about: "forward the messages of a channel to a URL of this machine",
		long: "It makes a pull consumer listen-NAME, whose jobs wait for a day while nobody listens, and POSTs each job\n" +
			"as a push delivery would be. 2xx is delivered; another answer is a failed attempt, as of a push consumer.\n" +
			"In a terminal, " + commandsOfListen + ". With --play no broker is needed.\n" +
			"Without --channel, broker listen is broker sink.",
		examples: "broker listen --channel orders --forward http://localhost:3000 --for 2s\n" +
			"broker listen --channel orders --forward http://localhost:3000/hook --as billing --since 10m --for 2s\n" +
			"broker listen --channel orders --forward http://localhost:3000 --from-dlq billing --rm --for 2s\n" +
			"broker listen --channel orders --forward http://localhost:3000 --record jobs.ndjson --output quiet --for 2s\n" +
			"broker listen --forward http://localhost:3000 --play jobs.ndjson",
		run: func(c *cobra.Command, _ []string) error { return l.run(c.Context()) }}.command()
	f := c.Flags()
	f.StringVar(&l.channel, "channel", "", "`CHANNEL` whose messages are forwarded")
	f.StringVar(&l.forward, "forward", "", "`URL` that gets them")
	f.StringVar(&l.name, "name", "", "`NAME` of the consumer, behind listen-; that of user and machine")
	f.StringVar(&l.as, "as", "", "`CONSUMER` of the channel whose ID, token, headers and identity the requests have")
	f.DurationVar(&l.since, "since", 0, "also messages that were accepted so long ago, `10m`")
	f.StringVar(&l.fromDead, "from-dlq", "", "first the dead letters of that `CONSUMER`, which stay dead letters")
	f.StringVar(&l.filter, "filter", "", "only messages for which the CEL `EXPRESSION` is true, from now on")
	f.DurationVar(&l.timeout, "timeout", 30*time.Second, "of one request, `30s`")
	f.IntVar(&l.concurrency, "concurrency", 1, "`NUMBER` of requests at a time")
	f.StringVar(&l.output, "output", "", "`HOW`: interactive (in a terminal the default), compact, or quiet (failures)")
	f.StringVar(&l.record, "record", "", "append what is forwarded to this `FILE`, for --play")
	f.StringVar(&l.play, "play", "", "forward what is in this `FILE` instead, without a broker")
	f.BoolVar(&l.remove, "rm", false, "delete the consumer at the end")
	f.DurationVar(&l.until, "for", 0, "end after that time, `5m`; 0: at an interrupt")
	s.inTarget(c)
	_ = c.RegisterFlagCompletionFunc("channel", s.names(channels))
	return c
}

// run forwards until the context ends.
func (l *listening) run(ctx context.Context) error {
	if err := l.check(); err != nil {
		return err
	}
	if l.play != "" {
		return l.playFile(ctx)
	}
	var err error
	if l.recorder, err = newRecorder(l.record); err != nil {
		return err
	}
	return errors.Join(l.listen(ctx), l.recorder.close())
}

// listen makes the consumer and forwards its jobs.
func (l *listening) listen(ctx context.Context) error {
	m, err := l.s.manager()
	if err != nil {
		return err
	}
	if _, err := m.Get(ctx, penstock.ChannelPath(l.channel)); err != nil {
		return err
	}
	if l.to, err = l.newForwarder(ctx, m); err != nil {
		return err
	}
	if err := l.removeOld(ctx, m); err != nil {
		return err
	}
	if err := l.attach(ctx, m); err != nil {
		return err
	}
	if l.fromDead != "" {
		if err := l.forwardDead(ctx, m); err != nil {
			return err
		}
	}
	if l.until > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.until)
		defer cancel()
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if l.output == interactive && !l.s.json {
		go l.obey(ctx, end)
	}
	err = l.work(ctx)
	if l.remove && err == nil {
		err = deleted(context.WithoutCancel(ctx), m, penstock.ConsumerPath(l.channel, l.consumer))
	}
	return err
}

// check looks at the flags, and completes them.
func (l *listening) check() error {
	switch {
	case l.channel == "" && l.play == "":
		return wrong("--channel is missing")
	case l.forward == "":
		return wrong("--forward is missing")
	case l.play != "" && (l.channel+l.name+l.as+l.fromDead+l.filter+l.record != "" || l.since != 0 || l.remove):
		return wrong("--play needs no broker: of the other flags it takes --forward, --timeout and --output")
	case !slices.Contains([]string{"", interactive, compact, quiet}, l.output):
		return wrong("--output must be interactive, compact or quiet")
	case l.since < 0 || l.until < 0 || l.timeout <= 0 || l.concurrency < 1 || l.concurrency > 500:
		return wrong("--since, --for, --timeout or --concurrency is out of its range")
	}
	if u, err := url.Parse(l.forward); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return wrong("--forward must be a URL like http://localhost:3000")
	}
	if l.output == "" {
		l.output = compact
		if in, ok := l.s.Stdin.(*os.File); ok && l.play == "" && isTerminal(in) && isTerminal(l.s.Stdout) {
			l.output = interactive
		}
	}
	if l.play != "" {
		return nil
	}
	if l.name == "" {
		l.name = ownName()
	}
	l.consumer = listenPrefix + l.name
	return errors.Join(id("channel", l.channel), id("consumer", l.consumer))
}

// ownName is a name for this user on this machine.
func ownName() string {
	name := "me"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "-" + host
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// attach makes the consumer, or takes the one of last time.
func (l *listening) attach(ctx context.Context, m *penstock.Manager) error {
	path := penstock.ConsumerPath(l.channel, l.consumer)
	old, err := m.Get(ctx, path)
	if err != nil && !isGone(err) {
		return err
	}
	if err == nil && old.Type != "pull" {
		return local("%s/%s is a push consumer; --name takes another one", l.channel, l.consumer)
	}
	f := penstock.Fields{"type": "pull", "ttl": listenLife.String(), "dlq": "expire:" + listenLife.String()}
	if l.filter != "" || err == nil {
		f["filter"] = l.filter
	}
	from := time.Now().Add(-l.since).UTC().Format(time.RFC3339Nano)
	if l.since > 0 && err != nil {
		f["since"] = from
	}
	made, _, failed := m.Put(ctx, path, f)
	if failed != nil {
		return failed
	}
	if l.as == "" {
		l.to.token = made.Token
	}
	if l.since > 0 && err == nil {
		if err := m.Post(ctx, path+"/replay", replayOrder{From: from, Only: "all", Filter: l.filter}, nil); err != nil {
			return err
		}
	}
	if l.s.json {
		return nil
	}
	return l.s.done(nil, "%s/%s forwards to %s", l.channel, l.consumer, l.forward)
}

// removeOld deletes consumers of listen that nobody has used for a day, where the broker deletes by request.
func (l *listening) removeOld(ctx context.Context, m *penstock.Manager) error {
	old := time.Now().Add(-listenLife)
	return m.Each(ctx, "/consumers", url.Values{"channel": {l.channel}}, 0, func(raw json.RawMessage) error {
		var k struct {
			ID, Type    string
			LastClaimAt *time.Time
			ChangedAt   time.Time
		}
		if err := json.Unmarshal(raw, &k); err != nil {
			return err
		}
		if !strings.HasPrefix(k.ID, listenPrefix) || k.ID == l.consumer || k.Type != "pull" || k.ChangedAt.IsZero() ||
			k.ChangedAt.After(old) || k.LastClaimAt != nil && k.LastClaimAt.After(old) {
			return nil
		}
		err := m.Delete(ctx, penstock.ConsumerPath(l.channel, k.ID))
		var e *penstock.Error
		if errors.As(err, &e) && (e.Code == "method_not_allowed" || isGone(err)) {
			return nil
		}
		return err
	})
}

// work claims and forwards until the context ends.
func (l *listening) work(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(l.s.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := penstock.New(penstock.Options{URL: l.s.target.URL, AdminToken: l.s.target.token, OnlyOptions: true,
		Logger: log})
	if err != nil {
		return err
	}
	defer client.Close()
	w, err := client.Worker(l.consumer, penstock.WorkerOptions{Channel: l.channel, Consumer: l.consumer,
		Concurrency: l.concurrency, StopTimeout: l.timeout})
	if err != nil {
		return err
	}
	w.HandleOther(func(ctx context.Context, d *penstock.Delivery) error {
		a := l.deliver(ctx, copyOf(d))
		if a.said != nil {
			return a.said
		}
		return a.verdict()
	})
	return w.Run(ctx)
}

// deliver forwards a job, records and keeps it, and prints what became of it; said is why that failed.
func (l *listening) deliver(ctx context.Context, j copied) attempt {
	if err := l.recorder.add(l.to, j); err != nil {
		return attempt{said: err}
	}
	a := l.to.post(ctx, j)
	if l.output == interactive {
		a.number = l.kept.add(j)
	}
	a.said = l.say(a)
	return a
}

// say prints what became of a job.
func (l *listening) say(a attempt) error {
	switch {
	case l.s.json:
		return l.s.line(a)
	case l.output == quiet && a.Error == "" && a.Status/100 == 2:
		return nil
	}
	what := fmt.Sprint(a.Status)
	if a.Error != "" {
		what = a.Error
	}
	number := ""
	if a.number > 0 {
		number = fmt.Sprintf("[%d] ", a.number)
	}
	if a.again {
		number += "again "
	}
	return l.s.done(nil, "%s%s %s #%d %s %dms", number, a.At.Local().Format("15:04:05"), a.MessageID, a.Attempt, what,
		a.Milliseconds)
}

// verdict is what the broker hears of an attempt: nil is delivered.
func (a *attempt) verdict() error {
	switch {
	case a.Error != "":
		return errors.New(a.Error)
	case a.Status/100 == 2:
		return nil
	case a.retryAfter > 0 && (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable):
		return penstock.RetryIn(a.retryAfter, fmt.Sprintf("status %d", a.Status))
	}
	return fmt.Errorf("status %d", a.Status)
}
