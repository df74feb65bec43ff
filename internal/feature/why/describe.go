package why

import (
	"context"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// Describe adds to a view of a consumer what holds it as a whole, and what its last attempts and its
// workers have shown. It takes one statement; without the store it is what this broker knows.
func (e *Explainer) Describe(ctx context.Context, k *durable.Consumer, view *apitype.Consumer) {
	asking, cancel := context.WithTimeout(ctx, askWithin)
	has, err := e.o.Store.CircumstancesOf(asking, k.No)
	cancel()
	ch := e.o.Catalogue.ChannelByNo(k.ChannelNo)
	if ch == nil {
		return
	}
	has.Version = min(has.Version, k.Version) // the view is of k
	v := e.view(ctx, ch, k, has, err)
	code, _, until, _ := e.holding(k, v.has.Hold, v.now)
	view.HeldBy, view.HeldUntil = string(code), timeAt(until)
	f := &v.has.Fact
	view.LastAttemptAt, view.LastSuccessAt = msAt(f.AttemptMs), msAt(f.SuccessMs)
	view.LastStatus, view.LastError = f.StatusCode, f.Error
	if k.Type == durable.Pull {
		claim, _, _, _, _ := v.contact(ctx)
		view.LastClaimAt = timeAt(claim)
	}
}
