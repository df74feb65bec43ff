//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	penstock "github.com/penstock-broker/penstock/clients/go"
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

// unkept makes connections for one request each: brokers are killed and started again at their addresses.
var unkept = &http.Transport{DisableKeepAlives: true}

// administrator manages the broker at a base URL, and asks once.
func administrator(base string) *penstock.Manager {
	client, err := penstock.New(penstock.Options{URL: base, AdminToken: adminToken, Timeout: 15 * time.Second, Tries: 1,
		Transport: unkept, OnlyOptions: true})
	if err != nil {
		panic(err) // no address of ours
	}
	return client.Manage()
}

// send makes a request with a form, as administrator, and returns the answer's status.
func send(ctx context.Context, method, target string, form url.Values) (int, error) {
	slash := len("http://") + strings.IndexByte(target[len("http://"):], '/')
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	status, _, _, err := administrator(target[:slash]).Call(ctx, method, target[slash:], header, []byte(form.Encode()))
	if refused := (*penstock.Error)(nil); errors.As(err, &refused) && refused.Status != 0 {
		return refused.Status, nil
	}
	return status, err
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
