package rehearse

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// steady is how long nothing may be refused or late before all is well.
	steady = 5 * time.Second
	// commandWithin bounds each of --break and --mend.
	commandWithin = 5 * time.Minute
	// removeWithin bounds the removal of what a rehearsal made, also after a signal.
	removeWithin = 30 * time.Second
	// look is the time between two looks at the books.
	look = 200 * time.Millisecond
)

// A rehearsal is under way.
type rehearsal struct {
	c        *Config
	out      io.Writer // progress
	books    *books
	manager  *penstock.Manager
	producer *producer
	pull     *puller
	sink     *sink // nil: none
	used     []int // the consumers
	name     string
	made     []string // paths, to be removed from the end
	broken   time.Duration
	mended   time.Duration
}

// Run rehearses, and returns the verdict. The verdict is nil where nothing was broken.
func Run(ctx context.Context, c *Config, progress io.Writer) (v *Verdict, err error) {
	r, err := prepare(ctx, c, progress)
	if r != nil {
		defer r.remove(ctx)
	}
	if err != nil {
		return nil, err
	}
	return r.run(ctx)
}

// prepare makes the clients and what they need in the broker.
func prepare(ctx context.Context, c *Config, progress io.Writer) (*rehearsal, error) {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // it never fails
	name := "rehearsal-" + hex.EncodeToString(random)
	token := name + "-" + rand.Text()
	client, err := penstock.New(penstock.Options{URL: c.URL, ProducerID: name, Token: token, AdminToken: c.AdminToken,
		OnlyOptions: true, Timeout: postTimeout, Tries: 1, Logger: silent})
	if err != nil {
		return nil, err
	}
	b := newBooks(name + "-")
	r := &rehearsal{c: c, out: progress, books: b, manager: client.Manage(), name: name,
		producer: &producer{client: client, channel: name, books: b},
		pull:     &puller{client: client, channel: name, consumer: name + "-pull", books: b}}
	if c.Sink != "none" {
		if r.sink, err = listen(c.Sink, c.SinkURL, b); err != nil {
			return nil, err
		}
		r.used = append(r.used, push)
	}
	r.used = append(r.used, pull)
	return r, r.create(ctx, token)
}

// create makes producer, channel and consumers.
func (r *rehearsal) create(ctx context.Context, token string) error {
	put := func(path string, f penstock.Fields) error {
		f["token"] = token
		_, _, err := r.manager.Put(ctx, path, f)
		if refused := (*penstock.Error)(nil); !errors.As(err, &refused) || refused.Status == 0 {
			r.made = append(r.made, path)
		}
		return err
	}
	consumer := func(kind string, more penstock.Fields) error {
		f := penstock.Fields{"type": kind, "maxRetries": "1000", "backoff": "constant:1s", "timeout": "10s",
			"maxLeasesLost": "1000"}
		for _, field := range r.c.Policy {
			name, value, _ := strings.Cut(field, "=")
			f[name] = value
		}
		for name, value := range more {
			f[name] = value
		}
		return put(penstock.ConsumerPath(r.name, r.name+"-"+kind), f)
	}
	if err := put(penstock.ProducerPath(r.name), penstock.Fields{}); err != nil {
		return err
	}
	if err := put(penstock.ChannelPath(r.name), penstock.Fields{}); err != nil {
		return err
	}
	if err := consumer("pull", nil); err != nil || r.sink == nil {
		return err
	}
	return consumer("push", penstock.Fields{"callbackUrl": r.sink.url})
}

// run goes through the phases.
func (r *rehearsal) run(ctx context.Context) (*Verdict, error) {
	if err := r.pull.start(ctx); err != nil {
		return nil, err
	}
	defer func() { r.pull.finish() }()
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAsking()
	posting, stopPosting := context.WithCancel(ctx)
	defer stopPosting()
	posted := make(chan struct{})
	go func() { defer close(posted); r.producer.run(posting, asking, r.c.Rate) }()

	r.say("calm for %v", r.c.Calm)
	if !pause(ctx, r.c.Calm) {
		return nil, context.Cause(ctx)
	}
	if wrong := r.complaint(r.books.state(r.used)); wrong != "" {
		return nil, fmt.Errorf("all is not well before the outage: %s. Nothing was broken", wrong)
	}
	r.say("%s, for %v", r.c.Scenario, r.c.Outage)
	if err := r.outage(ctx); err != nil {
		return nil, err
	}
	r.say("after the outage: until all is well, at most %v", r.c.Wait)
	end := time.Now().Add(r.c.Wait)
	well := r.await(ctx, end, func(s state) bool { return r.books.now()-max(s.trouble, r.mended) > steady })
	stopPosting()
	<-posted
	// What was posted last has still to come.
	done := r.await(ctx, end.Add(10*time.Second), func(s state) bool { return s.open == 0 && s.asked == 0 })
	stopAsking()
	r.producer.under.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := r.pull.failure(); err != nil {
		return nil, fmt.Errorf("the pull consumer: %w", err)
	}
	return r.verdict(ctx, well && done)
}

// complaint says what is not well, "" if all is.
func (r *rehearsal) complaint(s state) string {
	r.books.mu.Lock()
	defer r.books.mu.Unlock()
	err := r.pull.failure()
	switch {
	case err != nil:
		return "the pull consumer: " + err.Error()
	case len(r.books.refusals) > 0:
		return "posts were refused: " + counts(r.books.refusals)
	case s.unanswered > 0:
		return fmt.Sprintf("%d posts have no answer", s.unanswered)
	case s.accepted == 0:
		return "nothing was accepted"
	case s.waits > r.books.late:
		return fmt.Sprintf("%d deliveries of accepted messages are missing; does the broker reach %s?", s.open, r.target())
	}
	return ""
}

func (r *rehearsal) target() string {
	if r.sink == nil {
		return "its Redis"
	}
	return r.sink.url
}

// outage takes away what the scenario says, and gives it back, whatever happens in between.
func (r *rehearsal) outage(ctx context.Context) (err error) {
	r.broken = r.books.enter(outage)
	defer func() {
		mending := r.restore(ctx)
		r.mended = r.books.enter(after)
		err = errors.Join(err, mending)
	}()
	if r.c.Scenario == consumerDown {
		if r.sink != nil {
			r.sink.down.Store(true)
		}
		r.pull.finish()
	} else if err := r.shell(ctx, "--break", r.c.Break); err != nil {
		return err
	}
	if !pause(ctx, r.c.Outage) {
		return context.Cause(ctx)
	}
	return nil
}

// restore gives back what was taken away, also after a signal.
func (r *rehearsal) restore(ctx context.Context) error {
	if r.c.Scenario != consumerDown {
		return r.shell(context.WithoutCancel(ctx), "--mend", r.c.Mend)
	}
	if r.sink != nil {
		r.sink.down.Store(false)
	}
	return r.pull.start(ctx)
}

// shell runs a command of the owner, whose output goes with the progress.
func (r *rehearsal) shell(ctx context.Context, flag, text string) error {
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	r.say("%s: %s", flag, text)
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	cmd.WaitDelay = time.Second // what it left behind may hold the output
	err := cmd.Run()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("the command of %s failed: %w; look at the installation", flag, err)
	}
	return nil
}

// await looks at the books until they are as wanted, or it is time, and reports whether they are.
func (r *rehearsal) await(ctx context.Context, end time.Time, wanted func(state) bool) bool {
	for {
		if wanted(r.books.state(r.used)) {
			return true
		}
		if time.Now().After(end) || !pause(ctx, look) {
			return false
		}
	}
}

// remove removes what the rehearsal made, and says what it could not remove.
func (r *rehearsal) remove(ctx context.Context) {
	if r.sink != nil {
		_ = r.sink.server.Close()
	}
	defer r.producer.client.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	for i := len(r.made) - 1; i >= 0; i-- {
		err := r.manager.Delete(ctx, r.made[i])
		refused := (*penstock.Error)(nil)
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			err = nil
		}
		if err != nil {
			reason := err.Error()
			if refused != nil && refused.Status == http.StatusMethodNotAllowed {
				reason = "it runs without BROKER_ALLOW_DELETE=true"
			}
			r.say("the broker keeps %s, which could not be removed: %s", strings.Join(r.made[:i+1], " "), reason)
			return
		}
	}
	r.say("what the rehearsal made is removed; its messages stay until retention removes them")
}

func (r *rehearsal) say(format string, args ...any) {
	fmt.Fprintf(r.out, "bench: "+format+"\n", args...)
}

// pause waits and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// jobs returns which messages are dead letters of a consumer, and which still wait for it.
func (r *rehearsal) jobs(ctx context.Context, kind string) (dead, waiting map[string]bool, err error) {
	name := r.name + "-" + kind
	letters, err := r.manager.DeadLetters(ctx, r.name, name, url.Values{}, mostMessages)
	if err != nil {
		return nil, nil, err
	}
	open, err := r.manager.Jobs(ctx, r.name, name, "", mostMessages)
	return messagesOf(letters), messagesOf(open), err
}

func messagesOf(jobs []penstock.ListedJob) map[string]bool {
	all := map[string]bool{}
	for _, j := range jobs {
		all[j.MessageURL[strings.LastIndexByte(j.MessageURL, '/')+1:]] = true
	}
	return all
}
