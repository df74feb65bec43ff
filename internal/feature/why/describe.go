package why

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
)

// Describe adds to a view of a consumer what holds it as a whole, and what its last attempts and its
// workers have shown. It takes one statement; without the store it is what this broker knows.
func (e *Explainer) Describe(ctx context.Context, k *durable.Consumer, view *apitype.Consumer) {
	asked := time.Now()
	asking, cancel := context.WithTimeout(ctx, askWithin)
	has, err := e.o.Store.CircumstancesOf(asking, k.No)
	cancel()
	ch := e.o.Catalogue.ChannelByNo(k.ChannelNo)
	if ch == nil {
		return
	}
	has.Version = min(has.Version, k.Version) // the view is of k
	e.view(ctx, ch, k, read{has, asked, err}).describe(ctx, view)
}

// Portray is Consumer and Describe, with the statements of Consumer alone.
func (e *Explainer) Portray(ctx context.Context, ch *catalogue.Channel, k *durable.Consumer,
	view *apitype.Consumer) apitype.Why {
	v := e.look(ctx, ch, k)
	v.describe(ctx, view)
	return v.explain(ctx)
}

func (v *view) describe(ctx context.Context, view *apitype.Consumer) {
	code, _, until, _ := v.e.holding(v.k, v.has.Hold, v.now)
	view.HeldBy, view.HeldUntil = string(code), timeAt(until)
	show(&v.has.Fact, view)
	if v.k.Type == durable.Pull {
		claim, _, _, _, _ := v.contact(ctx)
		view.LastClaimAt = timeAt(claim)
	}
}

func show(f *durable.Fact, view *apitype.Consumer) {
	view.LastAttemptAt, view.LastSuccessAt = msAt(f.AttemptMs), msAt(f.SuccessMs)
	view.LastStatus, view.LastError = f.StatusCode, f.Error
	view.LastClaimAt = msAt(f.ClaimMs)
}

// Recall adds to the views of consumers what their last attempts have shown, in one statement.
func (e *Explainer) Recall(ctx context.Context, consumers []uint32, views []*apitype.Consumer) {
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	known := map[uint32]durable.Fact{}
	facts, err := e.o.Store.Facts(asking, consumers)
	if err != nil {
		e.o.Log.Debug("the last attempts of consumers cannot be read", "error", err)
	}
	for _, f := range facts {
		known[f.ConsumerNo] = f
	}
	for i, no := range consumers {
		f := known[no]
		if e.o.Notebook != nil {
			f = e.o.Notebook.Of(no).Newer(f)
		}
		show(&f, views[i])
	}
}
