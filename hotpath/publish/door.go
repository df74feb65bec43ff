package publish

import (
	"context"

	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
)

// Sending returns the drafter of a request of another protocol, which was admitted elsewhere as a producer in a
// channel. Its drafts are set by the names of columns, see Draft.Set.
func (p *Publisher) Sending(ctx context.Context, st catalogue.Standing) (*Drafter, error) {
	if err := p.takesRows(ctx, &st); err != nil {
		return nil, err
	}
	w := p.drafter(sender{ch: st.Channel, producer: st.Producer, standing: st})
	return &w, nil
}

// MaxBody is the largest payload, bytes.
func (p *Publisher) MaxBody() int { return p.maxBody }

// Draft returns a draft, which its owner sets, gives to Complete and Submit, and frees.
func (w *Drafter) Draft() *Draft { return w.draft() }

// Complete ends the description of a draft. err is why its description has failed, nil where it has not: Submit
// leaves out a draft with an error.
func (w *Drafter) Complete(ctx context.Context, d *Draft, err error) {
	if err == nil {
		err = w.complete(ctx, d)
	}
	d.err = err
}

// Journals reports whether a message of the drafter may get its ID later than its answer.
func (w *Drafter) Journals() bool { return w.p.standby != nil && w.ch.Intake.Ack == policy.AckJournal }

// Err is why the message of a draft is not stored, nil where it is or the journal has it.
func (d *Draft) Err() error { return d.err }

// MessageID is the ID of the message of a draft towards consumers.
func (d *Draft) MessageID() string {
	if m := d.message(); m != nil {
		return m.PathID()
	}
	return ""
}

// Stored is the message of a draft by which the broker orders it, zero where only the journal has it.
func (d *Draft) Stored() (id ident.ID) {
	if m := d.message(); m != nil {
		id = m.ID
	}
	return id
}

// Key is that of the message of a draft in the store, "" where it has none.
func (d *Draft) Key() string {
	if m := d.message(); m != nil {
		return m.Key
	}
	return ""
}

// Free ends the use of a draft.
func (d *Draft) Free() { d.free() }
