package api

import (
	"context"
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// leads reports whether this API leads requests to those of other stores.
func (a *API) leads() bool { return a.o.Stores != nil && a.o.StoreName == "" }

// everywhere are the catalogues of all stores of the installation that were reached, and listed are those of which the
// lists of this API tell.
func (a *API) everywhere() []*catalogue.Catalogue {
	if a.o.Stores == nil {
		return []*catalogue.Catalogue{a.o.Catalogue}
	}
	return a.o.Stores.Catalogues()
}

func (a *API) listed() []*catalogue.Catalogue {
	if a.leads() {
		return a.everywhere()
	}
	return []*catalogue.Catalogue{a.o.Catalogue}
}

// freshEverywhere is fresh for all stores. One that is away keeps its copy: what the others have is listed.
func (a *API) freshEverywhere(ctx context.Context) error {
	if err := a.fresh(ctx); err != nil || isForPage(ctx) {
		return err
	}
	for _, c := range a.listed()[1:] {
		if err := c.Refresh(ctx); err != nil {
			a.log.Debug("the catalogue of another store could not be refreshed", "error", err)
		}
	}
	return nil
}

// channels returns up to n channels of all stores with an ID of at least from, by ID; group "": of any group. Of the
// other stores it leaves out the channels of the broker, of which each store has some under the same IDs.
func (a *API) channels(group, from string, n int) (page []*catalogue.Channel) {
	for i, c := range a.listed() {
		of := c.Channels
		if group != "" {
			of = func(from string, n int) []*catalogue.Channel { return c.ChannelsOf(group, from, n) }
		}
		if i == 0 {
			page = of(from, n)
			continue
		}
		for _, ch := range of(from, n) {
			if !ident.Reserved(ch.ID) {
				page = append(page, ch)
			}
		}
	}
	if a.leads() {
		slices.SortFunc(page, func(a, b *catalogue.Channel) int { return strings.Compare(a.ID, b.ID) })
		page = page[:min(n, len(page))]
	}
	return page
}

// channelsDeleted reports whether a channel was deleted: then the dates of a list do not say that it is as before.
func (a *API) channelsDeleted() bool {
	return slices.ContainsFunc(a.listed(), func(c *catalogue.Catalogue) bool { return len(c.DeletedChannels()) > 0 })
}

// inGroup is the number of channels of all stores that carry a group.
func (a *API) inGroup(id string) (n int) {
	for _, c := range a.everywhere() {
		n += c.InGroup(id)
	}
	return n
}

// roomInGroup refuses a channel that one more store than its own leaves no room for. The store of the channel counts
// its own channels exactly.
func (a *API) roomInGroup(channelID string, group *string) error {
	if a.o.Stores == nil || group == nil || *group == "" {
		return nil
	}
	g := a.o.Catalogue.Group(*group)
	if g == nil || g.MaxChannels == 0 {
		return nil
	}
	for _, c := range a.everywhere() {
		if ch := c.Channel(channelID); ch != nil && ch.Group == *group {
			return nil // it has its place
		}
	}
	if a.inGroup(*group) >= g.MaxChannels {
		return durable.ErrGroupFull
	}
	return nil
}
