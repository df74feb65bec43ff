package sqs

import (
	"context"
	"errors"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/intake"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// An identity is who sends a request: the holder of an access key, or anybody while management is open.
type identity struct {
	key *durable.SQSKey // nil: management is open to the request
	// Of a key:
	channel   string // its ID
	signature signature
}

// admit finds out who sends a request, from its head. Where management is open, any credentials are taken, and
// none; but those with the form of our keys are checked there too, so a key can be tried, and one that has
// ended is refused everywhere.
func (c *call) admit() (who identity, err error) {
	s, err := readSignature(&c.rc.Request.Header)
	if c.Open && (err != nil || !ours(s.key)) {
		return identity{}, nil
	}
	if err != nil {
		return who, err
	}
	if err = s.checkTime(); err != nil {
		return who, err
	}
	key, err := c.lookUp(c.ctx, answer.KeyOf(c.rc), s.key)
	if err != nil {
		return who, err
	}
	return identity{key: &key, channel: c.o.Catalogue.ChannelByNo(key.ChannelNo).ID, signature: s}, nil
}

// check checks what of the identity depends on the body.
func (who *identity) check(c *call, body []byte) error {
	if who.key == nil {
		return nil
	}
	if _, err := c.lookUp(c.ctx, answer.KeyOf(c.rc), who.key.ID); err != nil { // the body may have come slowly
		return err
	}
	return who.signature.check(&c.rc.Request.Header, body, who.key.Secret)
}

// still is what the standing of a request needs beside its records: the key must not have ended.
func (c *call) still() func(ctx context.Context) error {
	if c.who.key == nil {
		return nil
	}
	client := answer.KeyOf(c.rc)
	return func(ctx context.Context) error {
		_, err := c.lookUp(ctx, client, c.who.key.ID)
		return err
	}
}

// share is whose share of answers the request uses, once it is checked.
func (who *identity) share(rc *fasthttp.RequestCtx) share.Key {
	if who.key == nil {
		return answer.KeyOf(rc) // of open management
	}
	return share.Channel(who.key.ChannelNo)
}

// sees reports whether the caller may know of the queues of a channel.
func (who *identity) sees(ch *catalogue.Channel) bool {
	return who.key == nil || who.key.ChannelNo == ch.No
}

// named reports whether the caller may use the queues of a channel of that ID.
func (who *identity) named(channel string) bool { return who.key == nil || who.channel == channel }

var errNoKey = noKey.New("The security token included in the request is invalid: there is no such access key.")

// keys are the access keys that this broker has looked up. A key that is ended changes the catalogue, so what
// is remembered counts while the copy has not changed.
type keys struct {
	mu   sync.Mutex
	at   uint64 // revision of the catalogue before the look-ups
	byID map[string]durable.SQSKey
}

// mostKeys bounds the keys that are remembered, mostLookUps the questions to the store at once: anybody may send
// keys that are none.
const mostKeys, mostLookUps = 10_000, 8

// ask asks the store for an access key, in the share of the client.
func (d *Door) ask(ctx context.Context, client share.Key, id string) (durable.SQSKey, error) {
	if d.lookUps.Wait(ctx, client, 1) != nil {
		return durable.SQSKey{}, problem.ErrOverloaded
	}
	defer d.lookUps.Give(client, 1)
	return d.o.Store.SQSKey(ctx, id)
}

// lookUp returns an access key of a channel that exists.
func (d *Door) lookUp(ctx context.Context, client share.Key, id string) (durable.SQSKey, error) {
	if !ours(id) {
		return durable.SQSKey{}, errNoKey
	}
	at := d.o.Catalogue.Revision()
	d.keys.mu.Lock()
	k, known := d.keys.byID[id]
	known = known && d.keys.at == at
	d.keys.mu.Unlock()
	if known {
		return k, nil
	}
	ctx, cancel := context.WithTimeout(ctx, intake.AnswerWithin)
	defer cancel()
	k, err := d.ask(ctx, client, id)
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return k, errNoKey
	case err != nil:
		return k, err
	}
	ch := d.o.Catalogue.ChannelByNo(k.ChannelNo)
	if ch == nil { // another broker has just made it
		if err := d.o.Catalogue.Refresh(ctx); err != nil {
			return k, err
		}
		ch = d.o.Catalogue.ChannelByNo(k.ChannelNo)
	}
	if ch == nil || ch.Deleted {
		return k, errNoKey
	}
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	if d.keys.at != at || d.keys.byID == nil || len(d.keys.byID) >= mostKeys {
		d.keys.at, d.keys.byID = at, map[string]durable.SQSKey{}
	}
	d.keys.byID[id] = k
	return k, nil
}
