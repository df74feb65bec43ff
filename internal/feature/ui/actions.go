package ui

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The states of a consumer and of a channel, as the API says them.
const (
	active = "ACTIVE"
	paused = "PAUSED"
	dead   = "DEAD"
	gone   = "GONE"
)

// channelActions and consumerActions are what can be done, by the name in the path.
var (
	channelActions = map[string]*action{
		"pause":  {"Pause", askPauseChannel, doState},
		"resume": {"Resume", askResumeChannel, doState},
	}
	consumerActions = map[string]*action{
		"pause":  {"Pause", askPause, doState},
		"resume": {"Resume", askResume, doState},
		"revive": {"Revive", askRevive, doState},
		"retry":  {"Retry now", askRetry, doRetry},
		"test":   {"Send a test", askTest, doTest},
		"purge":  {"Purge", askPurge, doPurge},
		"rotate": {"Rotate the secret", askRotate, doRotate},

		// The query names the group of letters, or the redrive; without a group all letters are meant.
		"redrive":        {"Redrive", askRedrive, doRedrive},
		"delete":         {"Delete", askDelete, doDelete},
		"redrive-pause":  {"Pause", askRedriveState("Pause", "RUNNING"), doRedriveState},
		"redrive-resume": {"Resume", askRedriveState("Resume", "PAUSED", "STOPPED"), doRedriveState},
		"redrive-cancel": {"Cancel it", askRedriveState("Cancel", "RUNNING", "PAUSED", "STOPPED"), doRedriveState},
	}
)

// An offered is an action as a page offers it.
type offered struct {
	Name, URL string
	Harm      bool
}

// offer returns buttons for actions on a target; none where the dashboard only reads.
func (v *view) offer(t target, actions map[string]*action, names ...string) (out []offered) {
	if v.d.o.ReadOnly {
		return nil
	}
	for _, name := range names {
		if v.portal != nil && !portalActions[name] || !v.may(name, &t) {
			continue
		}
		t.Action = name
		out = append(out, offered{actions[name].name, t.URL(), name == "purge" || name == "delete"})
	}
	return out
}

// offersOf are the buttons on the page of a consumer.
func (v *view) offersOf(c *apitype.ListedConsumer) []offered {
	names := []string{"pause"}
	switch c.State {
	case paused:
		names = []string{"resume"}
	case dead, gone:
		names = []string{"revive"}
	}
	if names = append(names, "retry"); c.Type == "push" {
		names = append(names, "test", "rotate")
	}
	return v.offer(target{Channel: c.ChannelID, Consumer: c.ID}, consumerActions, append(names, "purge")...)
}

// offersOfChannel are the buttons on the page of a channel.
func (v *view) offersOfChannel(c *Channel) []offered {
	name := "pause"
	if c.State == paused {
		name = "resume"
	}
	offers := v.offer(target{Channel: c.ID}, channelActions, name)
	if len(offers) > 0 && v.mayPublish() {
		offers = append(offers, offered{Name: "Send a message", URL: publishURL(c.ID, "")})
	}
	return offers
}

func askPauseChannel(ctx context.Context, v *view, t *target) (q question, err error) {
	c, err := v.src.Channel(ctx, t.Channel, LastHour)
	return question{Title: "Pause the channel " + t.Channel + "?", Hits: channelJobs(&c), Bound: c.State,
		Nothing: c.State == paused, Then: []string{"The channel accepts no messages: a publish to it is refused until the " +
			"channel is resumed, and producers have to send again.",
			"Messages that are stored already are delivered as before."}}, err
}

func askResumeChannel(ctx context.Context, v *view, t *target) (q question, err error) {
	c, err := v.src.Channel(ctx, t.Channel, LastHour)
	return question{Title: "Resume the channel " + t.Channel + "?", Hits: channelJobs(&c), Bound: c.State,
		Nothing: c.State != paused, Then: []string{"The channel accepts messages again."}}, err
}

func channelJobs(c *Channel) string {
	text := "No stored job is touched. The channel has " + plural(c.Consumers, "consumer")
	if c.Counted {
		text += " and " + plural(c.Waiting, "job") + " waiting"
	}
	return text + "."
}

func askPause(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.src.Load(ctx, t.Channel, t.Consumer)
	return question{Title: "Pause " + t.Consumer + "?", Hits: waiting(&l, "is held", "are held"), Bound: l.State,
		Nothing: l.State != active, Then: []string{"The jobs stay queued, and so do those of all messages to come. None is " +
			"lost, and no attempt is counted.", "Deliveries under way end as usual.",
			"Nothing is delivered until somebody resumes the consumer."}}, err
}

func askResume(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.src.Load(ctx, t.Channel, t.Consumer)
	return question{Title: "Resume " + t.Consumer + "?", Hits: waiting(&l, "goes out", "go out"), Bound: l.State,
		Nothing: l.State != paused && l.State != gone, Then: []string{
			"Deliveries begin at once, as fast as the policy of the consumer allows."}}, err
}

func askRevive(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.src.Load(ctx, t.Channel, t.Consumer)
	return question{Title: "Revive " + t.Consumer + "?", Hits: waiting(&l, "is let go", "are let go"), Bound: l.State,
		Nothing: l.State != dead && l.State != gone, Then: []string{
			"The broker tries one job first. When that is delivered, the others follow; when it fails, the consumer is held " +
				"again."}}, err
}

func askTest(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.src.Load(ctx, t.Channel, t.Consumer)
	return question{Title: "Send a test message to " + t.Consumer + "?", Hits: "No job is touched.", Bound: l.State,
		Nothing: l.Type != "push", Then: []string{"The broker sends one request to the address of the consumer, with the " +
			"header X-Broker-Test: true, and shows the answer.", "It leaves no job and changes nothing at the broker."}}, err
}

// waiting says how many jobs an action hits.
func waiting(l *Load, one, many string) string {
	switch {
	case !l.Counted:
		return "Redis does not say how many jobs wait."
	case l.Waiting == 0:
		return "No job waits now."
	case l.Waiting == 1:
		return "1 job waits and " + one + "."
	}
	return number(l.Waiting) + " jobs wait and " + many + "."
}

var errNotCounted = problem.New(fasthttp.StatusServiceUnavailable, "unavailable",
	"Redis does not say how many jobs this would hit, so nothing is asked. Try again in a moment.")

func askRetry(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.counted(ctx, t)
	return question{Title: "Retry all delayed jobs of " + t.Consumer + " now?", Hits: plural(l.Delayed, "delayed job") +
		" would be due at once.", Bound: strconv.Itoa(l.Delayed), Of: "delayed job", Nothing: l.Delayed == 0,
		Then: []string{"Each of them is attempted as soon as the policy of the consumer allows. Attempts stay counted, so " +
			"a job that fails its last one becomes a dead letter.", "A pause, or a hold of the consumer, stays."}}, err
}

func askPurge(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.counted(ctx, t)
	return question{Title: "Purge the queue of " + t.Consumer + "?",
		Hits: plural(l.Waiting, "waiting job") + " would end.", Bound: strconv.Itoa(l.Waiting), Of: "waiting job",
		Nothing: l.Waiting == 0, Harm: true, Then: []string{
			"They are not delivered. Each becomes a dead letter with the reason purged, which a redrive by request brings " +
				"back.",
			"Jobs in flight (" + number(l.InFlight) + " now) and messages that come meanwhile are left alone."}}, err
}

// counted is Load where the action needs the numbers.
func (v *view) counted(ctx context.Context, t *target) (l Load, err error) {
	if l, err = v.src.Load(ctx, t.Channel, t.Consumer); err == nil && !l.Counted {
		err = errNotCounted
	}
	return l, err
}

// post sends an action without a body to the API, and reads the answer into a value; nil: it is not read.
func (v *view) post(t *target, into any) error {
	a, err := v.do(Request{Method: fasthttp.MethodPost, Path: t.API() + "/" + t.Action})
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(a.Body, into)
}

func doState(v *view, t *target) (effect, error) { return effect{}, v.post(t, nil) }

func doRetry(v *view, t *target) (effect, error) {
	var r apitype.Retried
	err := v.post(t, &r)
	return effect{n: int64(r.Retried)}, err
}

func doPurge(v *view, t *target) (out effect, err error) {
	var p apitype.Purged
	err = v.post(t, &p)
	if out.n = int64(p.Purged); err == nil && p.More {
		out.result = result{Title: plural(p.Purged, "job") + " purged, and there are more", Target: t,
			Text: "A request takes at most 25 seconds. Purge again for the rest."}
	}
	return out, err
}

func askRotate(ctx context.Context, v *view, t *target) (q question, err error) {
	l, err := v.src.Load(ctx, t.Channel, t.Consumer)
	return question{Title: "Rotate the signing secret of " + t.Consumer + "?", Hits: "No job is touched.", Bound: l.State,
		Nothing: l.Type != "push", Then: []string{
			"The broker makes a new secret, shows it once, and signs each delivery with it.",
			"A secret that the consumer has already goes on signing, too, for the time of its signingOverlap. Give the new " +
				"one to the consumer within that time."}}, err
}

// doRotate asks for a new secret, and shows it.
func doRotate(v *view, t *target) (out effect, err error) {
	a, err := v.do(Request{Method: fasthttp.MethodPut, Path: t.API(), Body: []byte("signingSecret=generate"),
		Headers: map[string]string{fasthttp.HeaderContentType: apitype.MediaForm}})
	if err != nil {
		return out, err
	}
	var c apitype.Consumer
	err = json.Unmarshal(a.Body, &c)
	out.result = result{Title: "The new signing secret of " + t.Consumer, Target: t, Once: true,
		Text:  "It is shown here and never again.",
		Facts: []setting{{"Secret", c.Policy.SigningSecret}, {"The old one signs for", c.Policy.SigningOverlap}}}
	return out, err
}

// A result is what an action met, where one sentence does not say it.
type result struct {
	Title, Text string
	Facts       []setting
	Body        string // what a consumer answered
	Target      *target
	Once        bool // it is not to be done once more from here
}

// doTest sends a test, and shows what it met.
func doTest(v *view, t *target) (effect, error) {
	var c apitype.ConsumerTest
	err := v.post(t, &c)
	r := result{Title: "The test was delivered", Target: t, Text: "A delivery with this answer would have succeeded."}
	if c.Error != "" {
		r.Title, r.Text = "The test failed", cut(c.Error, mostReason)
	}
	if c.Status > 0 {
		r.Facts = append(r.Facts, setting{"Answer", strconv.Itoa(c.Status)})
	}
	r.Facts = append(r.Facts, setting{"Time", number(c.DurationMs) + " ms"})
	if r.Body = c.Body; c.BodyEncoding != "" {
		r.Body = c.BodyEncoding + ": " + c.Body
	}
	return effect{result: r}, err
}
