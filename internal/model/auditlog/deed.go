package auditlog

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
)

// A Deed is a change that a request is about to make. The store writes one entry for it, in the first
// transaction that the request commits.
type Deed struct {
	Who, From, Action, Resource string
	// Portray returns what an entry shows of a row of the store, without secrets; nil: nothing.
	Portray func(row any) any
	// Params are shown as After where the transaction changes no row that is shown. It has no secrets.
	Params any
	// Added are members that After has beside those of a row.
	Added map[string]any

	id       [16]byte
	deciding sync.Mutex // held by a transaction that writes the entry
	written  bool

	mu            sync.Mutex
	noted         bool
	before, after any
}

// NewDeed returns a deed with a name of its own: a transaction that is repeated writes one entry.
func NewDeed(who, from, action, resource string) *Deed {
	d := &Deed{Who: who, From: from, Action: action, Resource: resource}
	_, _ = rand.Read(d.id[:]) // never fails
	return d
}

// DeedKey is the key of the context of a request under which its Deed is.
type DeedKey struct{}

// With returns a context with a deed.
func With(ctx context.Context, d *Deed) context.Context { return context.WithValue(ctx, DeedKey{}, d) }

// Of returns the deed of a context, nil where nothing is to be logged.
func Of(ctx context.Context) *Deed {
	d, _ := ctx.Value(DeedKey{}).(*Deed)
	return d
}

// Begin waits for other transactions of the request that may write the entry. It returns false where the entry
// is written; otherwise the caller calls End.
func (d *Deed) Begin() bool {
	d.deciding.Lock()
	if d.written {
		d.deciding.Unlock()
		return false
	}
	return true
}

// End tells whether the transaction of Begin was committed with the entry.
func (d *Deed) End(written bool) {
	d.written = written
	d.deciding.Unlock()
}

// Again forgets what a transaction noted that is repeated.
func (d *Deed) Again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noted, d.before, d.after = false, nil, nil
}

// Note notes rows before and after a change, nil for none, for the deed of a context. Of several in one
// transaction the first counts: it is that of the resource that the request names.
func Note(ctx context.Context, before, after any) {
	d := Of(ctx)
	if d == nil || d.Portray == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noted {
		return
	}
	d.noted = true
	if before != nil {
		d.before = d.Portray(before)
	}
	if after != nil {
		d.after = d.Portray(after)
	}
}

// Entry returns the entry of the deed, without number, time and hash, and the name of the deed.
func (d *Deed) Entry() (e Entry, id [16]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := d.after
	if row, ok := after.(map[string]any); ok && len(d.Added) > 0 {
		whole := maps.Clone(row)
		maps.Copy(whole, d.Added)
		after = whole
	}
	if !d.noted {
		after = d.Params
	}
	return Entry{Who: d.Who, From: d.From, Action: d.Action, Resource: d.Resource, Before: JSON(d.before),
		After: JSON(after)}, d.id
}
