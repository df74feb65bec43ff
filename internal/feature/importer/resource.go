package importer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/seedfile"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// maxCallback is the longest callback URL, bytes.
const maxCallback = 2048

// Moving is the StateReason of a consumer that waits for the switch.
const Moving = "moving from webhook-broker: broker import webhook-broker --resume ends the pause"

// A target is the consumer here of one of the old database.
type target struct {
	channel, id string // its own, and that of its channel
	refused     error  // why it has none
}

// resources creates what is missing of producers, channels and consumers. What exists is left as it is.
func (im *Importer) resources(ctx context.Context, r *Report) error {
	if err := im.o.Catalogue.Refresh(ctx); err != nil {
		return err
	}
	targets := map[string]*target{}
	im.ids = map[string]map[string]*string{producers: {}, channels: {}, consumers: {}}
	for _, kind := range []struct{ name, query string }{
		{producers, selectProducers}, {channels, selectChannels}, {consumers, selectConsumers}} {
		err := im.o.Old.resources(ctx, kind.query, func(row *resource) error {
			err := im.put(ctx, kind.name, row)
			var no *refusal
			refused := errors.As(err, &no)
			if kind.name == consumers {
				t := &target{channel: row.channel.String, id: row.id.String}
				if refused {
					t.refused = no
				} else if ch := im.channel(t.channel); ch != nil {
					t.channel = ch.ID
				}
				targets[row.internal] = t
			}
			switch {
			case refused:
				im.refused(r, kind.name, row.id.String, no)
			case err != nil:
				return err
			}
			if refused {
				r.count(kind.name, 1, 0)
				return nil
			}
			im.known(kind.name, row.id.String)
			r.count(kind.name, 1, 1)
			return nil
		})
		if err != nil {
			return err
		}
		if err := im.seed(ctx, kind.name); err != nil {
			return err
		}
		if err := im.o.Catalogue.Refresh(ctx); err != nil {
			return err
		}
	}
	for row, t := range targets {
		if targets[fold(row)] == nil {
			targets[fold(row)] = t
		}
	}
	im.targets, im.looked = targets, time.Now()
	return nil
}

// known remembers an ID that is here.
func (im *Importer) known(kind, id string) {
	if im.ids[kind][fold(id)] == nil {
		im.ids[kind][fold(id)] = &id
	}
	im.ids[kind][id] = &id
}

// channel returns the channel here of a name in the old database, nil if it has none.
func (im *Importer) channel(name string) *catalogue.Channel {
	if id := named(im.ids[channels], name); id != nil {
		name = *id
	}
	return im.o.Catalogue.Channel(name)
}

// producer is channel for producers.
func (im *Importer) producer(name string) *durable.Producer {
	if id := named(im.ids[producers], name); id != nil {
		name = *id
	}
	return im.o.Catalogue.Producer(name)
}

// seed creates the resources of a kind that the INI file names and the old database lacks: its broker has not
// been started with it.
func (im *Importer) seed(ctx context.Context, kind string) error {
	rows := im.o.Seed.rows(kind)
	for i := range rows {
		err := im.put(ctx, kind, &rows[i])
		var no *refusal
		switch {
		case errors.As(err, &no):
			im.tell.tell("note: %s %s of the seed file: %s", strings.TrimSuffix(kind, "s"), quoted(rows[i].id.String), no.reason)
		case err != nil:
			return err
		}
	}
	return nil
}

// put creates a resource, or notes how one that exists differs. A *refusal says why it cannot be.
func (im *Importer) put(ctx context.Context, kind string, row *resource) error {
	switch {
	case !ident.ValidName(row.id.String):
		return refuse("its ID is not 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -")
	case ident.Reserved(row.id.String):
		return refuse("its ID begins with ~, which belongs to the broker")
	case row.token.String == "" || !seedfile.ValidToken(row.token.String):
		return refuse("its token is not 1 to 255 visible ASCII characters")
	case !utf8.ValidString(row.name.String) || utf8.RuneCountInString(row.name.String) > 255:
		return refuse("its name is longer than 255 characters, or no UTF-8")
	}
	absent := false
	p := durable.Put{ID: row.id.String, Token: &row.token.String, NewToken: rand.Text(), Exists: &absent}
	if row.name.String != "" {
		p.Name = &row.name.String
	}
	var err error
	switch kind {
	case producers:
		if k := im.o.Catalogue.Producer(p.ID); k != nil {
			im.differs(kind, p.ID, row, k.Name, k.Token)
			return nil
		}
		_, _, err = im.o.Store.PutProducer(ctx, p)
	case channels:
		if k := im.o.Catalogue.Channel(p.ID); k != nil {
			im.differs(kind, p.ID, row, k.Name, k.Token)
			return nil
		}
		_, _, err = im.o.Store.PutChannel(ctx, p)
	default:
		err = im.putConsumer(ctx, p, row)
	}
	switch {
	case errors.Is(err, durable.ErrPrecondition): // somebody has created it meanwhile
		return nil
	case errors.Is(err, durable.ErrRejected), errors.Is(err, durable.ErrNotFound), errors.Is(err, durable.ErrFull):
		return refuse("the store does not take it: %s", err)
	}
	return err
}

// putConsumer creates a consumer. While the old broker still delivers, it is paused before it has a job.
func (im *Importer) putConsumer(ctx context.Context, p durable.Put, row *resource) error {
	ch := im.channel(row.channel.String)
	if ch == nil {
		return refuse("its channel %s is not here", quoted(row.channel.String))
	}
	put := durable.ConsumerPut{Put: p, ChannelID: ch.ID}
	kind := durable.Push
	switch {
	case row.consumerType.Valid && row.consumerType.Int64 == 0:
		kind = durable.Pull
	case row.consumerType.Valid && row.consumerType.Int64 != 1:
		return refuse("its type is %d, neither 0 (pull) nor 1 (push)", row.consumerType.Int64)
	}
	put.Type = &kind
	url := strings.TrimSpace(row.callbackURL.String)
	bad := egressFault(im.o.Egress, url)
	switch {
	case kind == durable.Push && bad != "":
		return refuse("the broker may not post to its callback URL: %s", bad)
	case bad == "":
		put.CallbackURL = &url
	case url != "":
		im.tell.tell("note: consumer %s of channel %s: its callback URL is left out, as a pull consumer needs none: %s", p.ID,
			ch.ID, bad)
	}
	if k := im.o.Catalogue.Consumer(ch.ID, p.ID); k != nil {
		im.differs(consumers, ch.ID+"/"+p.ID, row, k.Name, k.Token)
		if k.Type != kind || put.CallbackURL != nil && k.CallbackURL != url {
			im.tell.tell("note: consumer %s of channel %s exists with another type or callback URL, and is left as it is", p.ID,
				ch.ID)
		}
		return nil
	}
	k, _, err := im.o.Store.PutConsumer(ctx, put)
	if err != nil || !im.o.Paused {
		return err
	}
	_, err = im.o.Store.ChangeState(ctx, path(ch.ID, k.ID), durable.StateChange{ConsumerNo: k.No,
		From: []durable.ConsumerState{durable.StateActive}, To: durable.StatePaused, Reason: Moving})
	return err
}

// egressFault says why the broker may not post to a URL, "" where it may. It does not quote the URL.
func egressFault(p egress.Policy, url string) string {
	switch {
	case url == "":
		return "there is none"
	case len(url) > maxCallback:
		return fmt.Sprintf("it is longer than %d bytes", maxCallback)
	}
	if err := p.CheckURL(url); err != nil {
		return egress.Say(err)
	}
	return ""
}

// differs notes that a resource is here with other values. It may have been changed here since.
func (im *Importer) differs(kind, id string, row *resource, name, token string) {
	what := ""
	switch {
	case !atrest.Same(token, row.token.String):
		what = "another token"
	case row.name.String != "" && row.name.String != name:
		what = "another name"
	default:
		return
	}
	im.tell.tell("note: %s %s exists with %s, and is left as it is", strings.TrimSuffix(kind, "s"), id, what)
}

// resume lets the consumers go that wait for the switch.
func (im *Importer) resume(ctx context.Context) (resumed int, err error) {
	for _, no := range im.o.Catalogue.ConsumerNos() {
		k := im.o.Catalogue.ConsumerByNo(no)
		if k == nil || k.State != durable.StatePaused || k.StateReason != Moving {
			continue
		}
		ch := im.o.Catalogue.ChannelByNo(k.ChannelNo)
		if ch == nil {
			continue
		}
		changed, err := im.o.Store.ChangeState(ctx, path(ch.ID, k.ID), durable.StateChange{ConsumerNo: no,
			From: []durable.ConsumerState{durable.StatePaused}, SinceMs: k.StateMs, To: durable.StateActive, Release: true})
		if err != nil && !errors.Is(err, durable.ErrNotFound) {
			return resumed, err
		}
		if changed {
			resumed++
		}
	}
	return resumed, nil
}

// path is the path of a consumer.
func path(channel, consumer string) string { return "/channel/" + channel + "/consumer/" + consumer }

// quoted returns a text of the old database for a line, in bounds.
func quoted(text string) string {
	return fmt.Sprintf("%q", strings.ToValidUTF8(text[:min(len(text), 80)], "?"))
}
