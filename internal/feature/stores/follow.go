package stores

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

const (
	// look is the interval at which the copies are compared with the first catalogue.
	look = 250 * time.Millisecond
	// again is the pause after copies that could not be made.
	again = time.Second
	// followWithin bounds the copies that an answer waits for.
	followWithin = 2 * time.Second
)

// Run keeps the copies in the other stores up to date, until ctx ends.
func (r *Router) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, m := range r.members {
		wg.Go(func() {
			for ctx.Err() == nil {
				pause := look
				if r.follow(ctx, m) != nil {
					pause = again
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	wg.Wait()
}

// Follow makes the copies in the stores that can be reached, after a change of the first catalogue: what its answer
// says holds in all of them. A store that is away gets them later: only the change that finds it so waits for it.
func (r *Router) Follow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range r.members {
		if !m.failing.Load() {
			wg.Go(func() { _ = r.follow(ctx, m) })
		}
	}
	wg.Wait()
}

// follow makes the copies in one store, if the first catalogue has changed since.
func (r *Router) follow(ctx context.Context, m *member) error {
	p := m.part.Load()
	if p == nil || m.followed.Load() == r.o.Catalogue.Version() {
		return nil
	}
	select {
	case m.busy <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.busy }()
	version := r.o.Catalogue.Version() // before the reads: what is newer comes again
	if m.followed.Load() == version {
		return nil
	}
	err := r.copyTo(ctx, p, version)
	if err == nil {
		m.followed.Store(version)
	}
	if failed := err != nil && !errors.Is(err, context.Canceled); m.failing.Swap(failed) != failed {
		if failed {
			r.o.Log.Warn("a store does not have the latest producers, groups and API tokens; the broker tries again", "store",
				m.name, "error", err)
		} else {
			r.o.Log.Info("a store has the latest producers, groups and API tokens again", "store", m.name)
		}
	}
	return err
}

func (r *Router) copyTo(ctx context.Context, p *Part, version int64) error {
	if err := p.Catalogue.Refresh(ctx); err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	of := durable.Shared{Version: version, Producers: r.producers(p), Groups: r.groups(p)}
	want, err := r.o.Store.APITokens(ctx, "", durable.MaxAPITokens)
	if err != nil {
		return fmt.Errorf("read the API tokens of the first store: %w", err)
	}
	have, err := p.Store.APITokens(ctx, "", durable.MaxAPITokens)
	if err != nil {
		return fmt.Errorf("read the API tokens: %w", err)
	}
	if !sameTokens(have, want) {
		of.Tokens = append([]durable.APIToken{}, want...)
	}
	if len(of.Producers) == 0 && len(of.Groups) == 0 && of.Tokens == nil {
		return nil
	}
	if err := p.Store.Adopt(ctx, of); err != nil {
		return err
	}
	if err := p.Catalogue.Refresh(ctx); err != nil {
		return fmt.Errorf("read the catalogue: %w", err)
	}
	p.Announce()
	return nil
}

// producers are those that a store has otherwise than the first one.
func (r *Router) producers(p *Part) (differ []durable.Producer) {
	for _, want := range r.o.Catalogue.Producers("", math.MaxInt32) {
		if have := p.Catalogue.ProducerByNo(want.No); have == nil || !have.SameAs(want) {
			differ = append(differ, *want)
		}
	}
	for _, have := range p.Catalogue.Producers("", math.MaxInt32) {
		if want := r.o.Catalogue.Producer(have.ID); want == nil || want.No != have.No {
			gone := *have
			gone.Deleted = true
			differ = append(differ, gone)
		}
	}
	return differ
}

// groups are those that a store has otherwise than the first one.
func (r *Router) groups(p *Part) (differ []durable.Group) {
	for _, want := range r.o.Catalogue.Groups("", math.MaxInt32) {
		if have := p.Catalogue.Group(want.ID); have == nil || have.No != want.No || !have.SameAs(&want.Group) {
			differ = append(differ, want.Group)
		}
	}
	for _, have := range p.Catalogue.Groups("", math.MaxInt32) {
		if want := r.o.Catalogue.Group(have.ID); want == nil || want.No != have.No {
			gone := have.Group
			gone.Deleted = true
			differ = append(differ, gone)
		}
	}
	return differ
}

func sameTokens(have, want []durable.APIToken) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if !have[i].SameAs(&want[i]) {
			return false
		}
	}
	return true
}
