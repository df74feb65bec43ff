package api

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/feature/history"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// pageEntries is the number of entries on a page of a list.
const pageEntries = 50

// Channels lists channels from an ID on. It asks no store.
func (p pages) Channels(ctx context.Context, group, first string) (list []ui.Channel, next string) {
	troubled := p.troubledOf(ctx)
	all := p.o.Catalogue.Channels
	if group != "" {
		all = func(first string, n int) []*catalogue.Channel { return p.o.Catalogue.ChannelsOf(group, first, n) }
	}
	for i, ch := range all(first, pageEntries+1) {
		if i == pageEntries {
			return list, ch.ID
		}
		list = append(list, p.channelOf(ctx, ch, troubled))
	}
	return list, ""
}

// Groups lists groups from an ID on. It asks no store.
func (p pages) Groups(first string) (list []ui.Group, next string) {
	for i, g := range p.o.Catalogue.Groups(first, pageEntries+1) {
		if i == pageEntries {
			return list, g.ID
		}
		list = append(list, p.groupShown(g))
	}
	return list, ""
}

// Group returns a group. It asks no store.
func (p pages) Group(id string) (ui.Group, error) {
	g := p.o.Catalogue.Group(id)
	if g == nil {
		return ui.Group{}, errNoGroup
	}
	return p.groupShown(g), nil
}

// groupShown is a group with the counts of the consumers of its channels.
func (p pages) groupShown(g *catalogue.Group) ui.Group {
	out := ui.Group{Group: viewGroup(&g.Group), InIt: p.o.Catalogue.InGroup(g.ID)}
	s := p.sampled(context.WithValue(context.Background(), forPage{}, true))
	if out.Counted = s != nil; s == nil {
		return out
	}
	for _, ch := range p.o.Catalogue.ChannelsOf(g.ID, "", out.InIt) {
		for _, k := range p.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)) {
			n := countOf(s, k.No)
			out.Waiting, out.Dead = out.Waiting+n.Queued, out.Dead+n.Dead
		}
	}
	return out
}

// troubledOf counts the consumers that need a person, by channel.
func (p pages) troubledOf(ctx context.Context) map[uint32]int {
	n := map[uint32]int{}
	for _, t := range p.inTrouble(p.sampled(ctx), nil) {
		n[t.ch.No]++
	}
	return n
}

// channelOf is a channel with the counts of its consumers.
func (p pages) channelOf(ctx context.Context, ch *catalogue.Channel, troubled map[uint32]int) ui.Channel {
	c := ui.Channel{Channel: p.viewChannel(&ch.Channel), Troubled: troubled[ch.No]}
	s := p.sampled(ctx)
	c.Counted = s != nil
	for _, k := range p.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)) {
		c.Consumers++
		if s == nil {
			continue
		}
		n := countOf(s, k.No)
		c.Waiting, c.Dead = c.Waiting+n.Queued, c.Dead+n.Dead
		if !n.Oldest.IsZero() && (c.Oldest.IsZero() || n.Oldest.Before(c.Oldest)) {
			c.Oldest = n.Oldest
		}
	}
	return c
}

// Channel says how a channel is doing: one statement, for its history.
func (p pages) Channel(ctx context.Context, id string, over ui.Span) (c ui.Channel, err error) {
	ch := p.o.Catalogue.Channel(id)
	if ch == nil {
		return c, catalogue.ErrUnknownChannel
	}
	c = p.channelOf(ctx, ch, p.troubledOf(ctx))
	q := p.past(over, p.o.NowMs())
	q.ChannelNo = ch.No
	if c.History, err = (&history.Reader{Store: p.o.Store, NowMs: p.o.NowMs}).Slots(ctx, q); err != nil {
		c.Missing = append(c.Missing, "The history cannot be read now.")
	}
	return c, nil
}

// Scheduled lists the scheduled messages of a channel that wait, the next one first, from a place on.
func (p pages) Scheduled(ctx context.Context, channel, first, place string) (list []ui.Scheduled, next, at string,
	err error) {
	ch := p.o.Catalogue.Channel(channel)
	if ch == nil {
		return nil, "", "", catalogue.ErrUnknownChannel
	}
	var from *durable.Scheduled
	if first != "" {
		if from = schedulePlace(place); from == nil {
			return nil, "", "", problem.New(400, "unknown_first", "The page begins at no scheduled message.")
		}
	}
	found, err := p.o.Store.Schedules(ctx, ch.No, []durable.ScheduleStatus{durable.ScheduleWaiting}, from, pageEntries+1)
	for i, m := range found {
		if i == pageEntries {
			return list, m.PathID(), strconv.FormatInt(m.DueMs, 10) + "." + m.ID.String(), err
		}
		s := ui.Scheduled{ID: m.PathID(), Due: time.UnixMilli(m.DueMs).UTC(), Recurrence: m.Recurrence}
		if producer := p.o.Catalogue.ProducerByNo(m.ProducerNo); producer != nil {
			s.Producer = producer.ID
		}
		list = append(list, s)
	}
	return list, "", "", err
}

// Bulks lists the bulks of a channel.
func (p pages) Bulks(ctx context.Context, channel, first string) (list []apitype.Bulk, next string, err error) {
	ch := p.o.Catalogue.Channel(channel)
	if ch == nil {
		return nil, "", catalogue.ErrUnknownChannel
	}
	var from ident.ID
	if first != "" {
		if from, err = ident.Parse(first); err != nil {
			return nil, "", problem.New(400, "unknown_first", "The page begins at no bulk of the channel.")
		}
	}
	found, err := p.o.Store.Bulks(ctx, ch.No, 0, from, pageEntries+1)
	for i, b := range found {
		if i == pageEntries {
			return list, b.ID.String(), err
		}
		v := viewBulk(ch, b)
		if producer := p.o.Catalogue.ProducerByNo(b.ProducerNo); producer != nil {
			v.ProducedBy = producer.ID
		}
		list = append(list, v)
	}
	return list, "", err
}

// ReplaysUnderWay are the replays that are not over, without their counts.
func (p pages) ReplaysUnderWay() (list []ui.Replay) {
	for _, g := range p.o.Catalogue.Replays() {
		k := p.o.Catalogue.ConsumerByNo(p.o.Catalogue.Account(g.No))
		if k == nil || g.Replay == nil || len(list) == pageEntries {
			continue
		}
		if ch := p.o.Catalogue.ChannelByNo(k.ChannelNo); ch != nil {
			list = append(list, ui.Replay{Channel: ch.ID, Consumer: k.ID, Replay: viewReplay(g.Replay,
				durable.ReplayCounts{})})
		}
	}
	return list
}

// Replays lists the replays of a consumer, the newest first. How far it is was asked for the first one alone.
func (p pages) Replays(ctx context.Context, channel, consumer, first string) (list []ui.Replay, next string,
	err error) {
	ch, k, err := p.known(channel, consumer)
	if err != nil {
		return nil, "", err
	}
	from := uint64(math.MaxUint32)
	if first != "" {
		if from, err = strconv.ParseUint(first, 10, 32); err != nil {
			return nil, "", problem.New(400, "unknown_first", "The page begins at no replay of the consumer.")
		}
	}
	found, err := p.o.Store.Replays(ctx, *k, uint32(from), pageEntries+1)
	if err != nil {
		return nil, "", err
	}
	for i := range found {
		if i == pageEntries {
			return list, found[i].ID(), nil
		}
		r := ui.Replay{Channel: ch.ID, Consumer: k.ID, Counted: i == 0}
		var n durable.ReplayCounts
		if r.Counted {
			if n, err = p.o.Store.ReplayCounts(ctx, &found[i]); err != nil {
				return nil, "", err
			}
		}
		r.Replay = viewReplay(&found[i], n)
		list = append(list, r)
	}
	return list, "", nil
}

// started is about when this process began.
var started = time.Now()

// Brokers returns the brokers that are alive, and what this one knows of itself.
func (p pages) Brokers() ([]ui.Broker, ui.About) {
	about := ui.About{Version: p.o.Version, Started: started, Store: p.o.StoreKind}
	if p.o.Brokers == nil {
		return nil, about
	}
	return p.o.Brokers(), about
}

// Settings are those of this broker.
func (p pages) Settings() []apitype.Setting { return p.o.Settings }

const (
	// searched bounds the matches of each kind, and searchedChannels the channels in which a message is looked for.
	searched         = 25
	searchedChannels = 3
	// completed bounds the consumers that complete a search.
	completed = 50
)

// Search looks for an ID or a part of a name in the catalogue, and for a message or job by its ID.
func (p pages) Search(ctx context.Context, q string) (f ui.Found) {
	low := strings.ToLower(q)
	matches := func(id, name string) bool {
		return strings.Contains(strings.ToLower(id), low) || strings.Contains(strings.ToLower(name), low)
	}
	for _, producer := range p.o.Catalogue.Producers("", 1<<30) {
		if matches(producer.ID, producer.Name) {
			f.Producers = append(f.Producers, producer.ID)
		}
	}
	var channels []*catalogue.Channel
	for _, ch := range p.o.Catalogue.Channels("", 1<<30) {
		if !ident.Reserved(ch.ID) {
			channels = append(channels, ch)
		}
		if matches(ch.ID, ch.Name) {
			f.Channels = append(f.Channels, ch.ID)
		}
		for _, k := range p.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)) {
			if matches(k.ID, k.Name) {
				f.Consumers = append(f.Consumers, ui.MessageJob{Consumer: ch.ID, ID: k.ID})
			}
		}
	}
	f.More = len(f.Channels) > searched || len(f.Consumers) > searched || len(f.Producers) > searched
	f.Channels, f.Consumers = f.Channels[:min(len(f.Channels), searched)], f.Consumers[:min(len(f.Consumers), searched)]
	f.Producers = f.Producers[:min(len(f.Producers), searched)]
	p.searchMessages(ctx, q, channels, &f)
	return f
}

// Consumers returns the channel and ID of some consumers. It asks no store.
func (p pages) Consumers(channel, id string) (list []ui.MessageJob) {
	for _, ch := range p.o.Catalogue.Channels("", 1<<30) {
		if channel != ch.ID && (channel != "" || ident.Reserved(ch.ID)) {
			continue
		}
		for _, k := range p.o.Catalogue.Consumers(ch.ID, "", len(ch.Consumers)) {
			if id == "" || k.ID == id {
				list = append(list, ui.MessageJob{Consumer: ch.ID, ID: k.ID})
			}
			if len(list) == completed {
				return list
			}
		}
	}
	return list
}

// Jobs lists jobs of a consumer, the newest message first: those that are dead with two statements.
func (p pages) Jobs(ctx context.Context, channel, consumer, status, first string, limit int) (out ui.Jobs, err error) {
	ch, k, err := p.known(channel, consumer)
	if err != nil {
		return out, err
	}
	of := jobs.Listing{Consumer: k, Status: status, Back: true, Limit: limit}
	if first != "" {
		if of.From, err = p.deadFrom(ctx, ch, k, first); err != nil {
			return out, err
		}
	}
	view, next, _, err := p.jobPage(ctx, ch, of)
	return ui.Jobs{List: view.Result, Next: next}, err
}

// searchMessages looks for a message by its ID: in the channel that q names before a slash, else in a few.
func (p pages) searchMessages(ctx context.Context, q string, channels []*catalogue.Channel, f *ui.Found) {
	id := q
	if name, rest, ok := strings.Cut(q, "/"); ok {
		ch := p.o.Catalogue.Channel(name)
		if id = rest; ch == nil {
			f.Looked = "There is no channel " + name + "."
			return
		}
		channels = []*catalogue.Channel{ch}
	}
	if !ident.ValidName(id) {
		f.Looked = "Messages and jobs are found by their whole ID."
		return
	}
	if f.Looked = "Messages and jobs were looked for in all channels."; len(channels) == 1 {
		f.Looked = "Messages and jobs were looked for in the channel " + channels[0].ID + "."
	}
	if len(channels) > searchedChannels {
		f.Looked = "There are many channels, so no message was looked for: search for channel/ID."
		return
	}
	for _, ch := range channels {
		m, err := p.findMessage(ctx, ch, id)
		if err != nil {
			f.Looked = "Messages cannot be read now."
			return
		}
		if m.ID != "" {
			f.Messages = append(f.Messages, m)
		}
	}
}

// findMessage looks for a message, or for one of its jobs, in a channel: one statement. The zero value: it has none.
func (p pages) findMessage(ctx context.Context, ch *catalogue.Channel, id string) (m ui.FoundMessage, err error) {
	parsed, err := ident.Parse(id)
	if err != nil {
		held, err := p.o.Store.MessageByKey(ctx, ch.No, id)
		if err == nil && !held.IsZero() {
			return ui.FoundMessage{Channel: ch.ID, ID: id}, nil
		}
		return m, ignoreUnknown(err)
	}
	message, pos, isJob := parsed.Split()
	if !isJob {
		message = parsed
	}
	stored, err := p.headline(ctx, ch, message)
	if err != nil {
		return m, ignoreUnknown(err)
	}
	m = ui.FoundMessage{Channel: ch.ID, ID: stored.PathID()}
	if isJob && pos < len(ch.Consumers) && !ch.Consumers[pos].Deleted() {
		m.Consumer, m.Job = ch.Consumers[pos].ID, id
	}
	return m, nil
}

// ignoreUnknown returns nil for an error that says that there is no such message.
func ignoreUnknown(err error) error {
	if errors.Is(err, errUnknownMessage) || errors.Is(err, durable.ErrNotFound) {
		return nil
	}
	return err
}
