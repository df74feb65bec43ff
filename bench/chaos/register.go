//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// register creates producer, channels and consumers before anything is published.
func (r *rig) register(ctx context.Context) error {
	base := "http://" + r.nodes[0].addr
	if err := put(ctx, base+"/producer/"+r.plan.Producer, url.Values{"token": {r.plan.Token},
		"replyUrl": {"http://" + r.plan.Sinks + replyPath}}); err != nil {
		return err
	}
	for _, c := range r.plan.Channels {
		if err := put(ctx, base+"/channel/"+c, r.channelForm(c)); err != nil {
			return err
		}
	}
	for k := range r.plan.Consumers {
		if err := put(ctx, base+r.plan.path(k), r.consumerForm(k)); err != nil {
			return err
		}
	}
	return nil
}

// channelForm has what a repeat is in a channel, and what it is answered.
func (r *rig) channelForm(channel string) url.Values {
	form := url.Values{"token": {r.plan.Token}}
	switch channel {
	case flakyChannel:
		form.Set("identity", "producer")
	case batchedChannel:
		form.Set("duplicates", "acknowledge")
	case journalChannel:
		form.Set("ack", "journal")
	}
	return form
}

func (r *rig) consumerForm(k int) url.Values {
	c := r.plan.Consumers[k]
	form := url.Values{"token": {r.plan.Token}, "type": {"pull"}}
	if !c.Does.pull() {
		form.Set("type", "push")
		form.Set("callbackUrl", fmt.Sprintf("http://%s/%d", r.sinkLinks[c.Channel].Addr(), k))
	}
	if c.ID == ratedID { // a link that stalls would bunch its requests
		form.Set("callbackUrl", fmt.Sprintf("http://%s/%d", r.plan.Sinks, k))
	}
	for field, value := range policies[c.ID] {
		form.Set(field, value)
	}
	return form
}

// touchConsumer registers a consumer again without a change. Its success does not matter, since the
// broker may be set to die there.
func (r *rig) touchConsumer(ctx context.Context, base string, k int) {
	_ = put(ctx, base+r.plan.path(k), r.consumerForm(k))
}

// redrive asks for all dead letters of a consumer to be redriven, under the same condition.
func (r *rig) redrive(ctx context.Context, base string, k int) {
	_, _ = send(ctx, http.MethodPost, base+r.plan.path(k)+"/dlq", url.Values{"requeue": {r.plan.Token}})
}

var control = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
	CheckRedirect: noRedirect}

// send makes a request with a form, as administrator, and returns the answer's status.
func send(ctx context.Context, method, target string, form url.Values) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-Broker-Admin-Token", adminToken)
	res, err := control.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, errors.Join(err, res.Body.Close())
}

func put(ctx context.Context, target string, form url.Values) error {
	status, err := send(ctx, http.MethodPut, target, form)
	if err == nil && status != http.StatusCreated && status != http.StatusOK {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return fmt.Errorf("PUT %s: %w", target, err)
	}
	return nil
}
