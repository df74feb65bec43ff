package push

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// TestHeader marks a test message.
const TestHeader = "X-Broker-Test"

// mostTrials bounds the test messages under way in this process; a consumer has half of what is free.
const mostTrials = 16

var errTrials = &problem.Problem{Status: 503, Code: "overloaded", RetryAfter: 1,
	Detail: "As many tests of consumers are under way at this broker as may be. Nothing was sent; try again."}

// A Trial is what became of a test message.
type Trial struct {
	Status int           // of the answer; 0: none came
	Took   time.Duration // of the request
	Error  string        // why a delivery would have failed; "": it would not
	Body   []byte        // first KiB of the answer
}

// Try sends one test message with that ID to a push consumer as it is now, whatever its state. It is a
// delivery with the credentials, the signature and the address rules of others, and of no job: nothing
// is stored, no rate counts it, and no answer changes the state of the consumer. The channel gets one
// Trial, at the latest after the timeout of the consumer.
func (d *Dispatcher) Try(k *durable.Consumer, id ident.ID) (<-chan Trial, error) {
	who := share.Consumer(k.No)
	if !d.trials.Take(who, 1) {
		return nil, errTrials
	}
	out := make(chan Trial, 1)
	d.mu.Lock() // a stop waits for the deliveries that began before it
	stopped := d.stopped
	if !stopped {
		d.deliveries.Go(func() {
			defer d.trials.Give(who, 1)
			t := Trial{Error: errDelivery.Error()}
			if err := guard.Do("test of a consumer", func() error {
				t = d.try(k, id)
				return nil
			}); err != nil {
				d.log.Error("the test of a consumer failed in the broker", "consumer", k.No, "error", err)
			}
			out <- t
		})
	}
	d.mu.Unlock()
	if stopped {
		d.trials.Give(who, 1)
		return nil, problem.ErrDraining
	}
	return out, nil
}

func (d *Dispatcher) try(k *durable.Consumer, id ident.ID) Trial {
	p := d.policy(k)
	now := time.Now()
	v := &delivery{d: d, lane: &lane{no: k.No}, consumer: k, at: now, msg: d.testMessage(k, id, now),
		lease: redisq.Lease{ID: id, Attempt: 1}}
	target, err := v.target()
	res := egress.Result{Err: err, RetryAfter: -1}
	if err == nil {
		res = target.Send(d.life, Attempt{Message: v.msg, Consumer: k, Policy: p, No: 1, Test: true, delivery: v},
			now.Add(p.Timeout))
	}
	t := Trial{Status: res.Status, Took: time.Since(now), Body: res.Answer}
	if p.Judge(answerOf(&res), 1).Meaning != policy.Delivered {
		t.Error = describeFailure(res)
	}
	return t
}

// testMessage is the message of a test.
func (d *Dispatcher) testMessage(k *durable.Consumer, id ident.ID, at time.Time) *durable.Message {
	channel := ""
	if ch := d.catalogue.ChannelByNo(k.ChannelNo); ch != nil {
		channel = ch.ID
	}
	payload, _ := json.Marshal(struct { // texts and a time: it has no error
		Test       bool
		ChannelID  string
		ConsumerID string
		At         time.Time
	}{true, channel, k.ID, at.UTC().Truncate(time.Millisecond)})
	return &durable.Message{ID: id, ChannelNo: k.ChannelNo, ContentType: "application/json", Payload: payload}
}

// postTest is post of a test message: it takes no part of a rate, and keeps no response. The lane is one of
// its own, so that a refused access token counts for no other delivery.
func (v *delivery) postTest(target *posting, p *policy.Policy, deadline time.Time) (res egress.Result) {
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	v.fill(req)
	req.Header.Set(TestHeader, "true")
	client, ok := p.Authorization.OAuth2()
	if !ok {
		return target.Post(req, time.Until(deadline))
	}
	err := v.withToken(client, deadline, func(authorization string, _ bool) int {
		req.Header.Set("Authorization", authorization)
		if res = target.Post(req, time.Until(deadline)); res.Err != nil {
			return 0
		}
		return res.Status
	})
	if errors.Is(err, errOtherFetches) {
		err = errTokenAwaited
	}
	if err != nil {
		return egress.Result{Err: err, RetryAfter: -1}
	}
	return res
}

var errTokenAwaited = errors.New("another broker is fetching the access token; test again in a moment")
