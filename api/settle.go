package api

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// What a client got may be PUT again, whole or edited: settling a document takes out of it what only
// shows the present state. Between that and the write another client may change the resource; a field
// that was taken out then keeps what that client has set, as one that is absent does.

// settleProducer settles the settings in a document with those of the stored producer.
func (a *API) settleProducer(ctx context.Context, d *document, id string) error {
	if d.literal() {
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	record := ""
	if p := a.o.Catalogue.Producer(id); p != nil {
		record = p.Settings
	}
	return d.settle(a.settings(record), true)
}

// settleChannel settles the settings in a document with those of the stored channel.
func (a *API) settleChannel(ctx context.Context, d *document, id string) error {
	if d.literal() {
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	record := ""
	if ch := a.o.Catalogue.Channel(id); ch != nil {
		record = ch.Channel.Intake
	}
	return d.settle(policy.ShowIntake(record), true)
}

// settleGroup settles the settings in a document with those of the stored group.
func (a *API) settleGroup(ctx context.Context, d *document, id string) error {
	if d.literal() {
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	record := ""
	if g := a.o.Catalogue.Group(id); g != nil {
		record = g.Settings
	}
	return d.settle(policy.ShowGroup(record), true)
}

// settleConsumer settles the policy in a document with that of the stored consumer.
func (a *API) settleConsumer(ctx context.Context, d *document, channelID, id string) error {
	if d.literal() {
		return nil
	}
	if err := a.fresh(ctx); err != nil {
		return err
	}
	record, pull := "", d.form["type"] == durable.Pull.String()
	if k := a.o.Catalogue.Consumer(channelID, id); k != nil {
		record, pull = k.Policy, k.Type == durable.Pull
	}
	stored := a.o.Policies.Show(record, pull)
	d.inherit(stored, a.o.Policies.Show("", false), a.o.Policies.Show("", true))
	return d.settle(stored, false)
}

// literal reports whether there is nothing to settle: a form without a masked secret.
func (d *document) literal() bool {
	for _, text := range d.form {
		if policy.Masked(text) {
			return false
		}
	}
	return !d.json
}

// is checks that the ID that a document shows is that of the path.
func (d *document) is(id string) error {
	if d.id == "" || d.id == id {
		return nil
	}
	return problem.New(fasthttp.StatusBadRequest, "invalid_id", "The member ID is not the ID in the path. Leave it "+
		"out, or send the request to its own path.")
}

// settle takes masked secrets out of the document, which keep the stored ones, and what JSON shows of the
// values that are stored: they were checked when they were set. shown are the settings as GET shows them
// now. With inForce a value is also taken out where the installation sets it.
func (d *document) settle(shown []policy.Setting, inForce bool) error {
	for _, s := range shown {
		field := fieldOf(s)
		text, ok := d.form[field]
		switch {
		case !ok:
		case text == s.Value && (s.Masks(text) || d.json && (inForce || !s.Inherited)):
			delete(d.form, field)
		case s.Masks(text):
			return problem.Newf(fasthttp.StatusBadRequest, "invalid_policy",
				"The field %s is masked, and no such secret is stored. Give the secret, or leave the field out.", field)
		}
	}
	return nil
}

// inherit takes out of the document the settings that it names as inherited, or gives them back to the
// installation where the stored consumer sets them. One with another value than that of the
// installation was edited: it is set. All settings are in one order; push and pull are those of
// consumers that set none.
func (d *document) inherit(stored, push, pull []policy.Setting) {
	for i, s := range stored {
		field := fieldOf(s)
		text, ok := d.form[field]
		switch {
		case !ok || !d.inherited[field]:
		case s.Inherited && text == s.Value: // as it is now
			delete(d.form, field)
		case text != push[i].Value && text != pull[i].Value && !d.follows(field):
		case s.Inherited:
			delete(d.form, field)
		default:
			d.form[field] = ""
		}
	}
}

// follows reports whether a field has the value that another field of the document gives it where it is
// not set.
func (d *document) follows(field string) bool {
	return field == "maxLeasesLost" && d.form[field] == d.form["maxRetries"]
}

// fieldOf returns the field of a setting, whose name has a capital first letter.
func fieldOf(s policy.Setting) string { return strings.ToLower(s.Name[:1]) + s.Name[1:] }
