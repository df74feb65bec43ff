package redrive

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/jobs"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// slowLetters is a store with these redrives, whose steps take a while and never find a letter.
type slowLetters struct {
	Store
	redrives []durable.Redriving
	takes    time.Duration
	steps    []uint32 // the consumer of each step
}

func (s *slowLetters) BusyRedrivings(_ context.Context, consumerNo, no uint32, limit int) (page []durable.Redriving,
	err error) {
	for _, r := range s.redrives {
		if (key{r.ConsumerNo, r.No}).after(key{consumerNo, no}) && len(page) < limit {
			page = append(page, r)
		}
	}
	return page, nil
}

func (s *slowLetters) DeadLetters(_ context.Context, of durable.DeadSelection, _ ident.ID, _ bool, _ int) (
	[]durable.DeadJob, ident.ID, error) {
	time.Sleep(s.takes)
	s.steps = append(s.steps, of.ConsumerNo)
	return nil, ident.AtMillis(1), nil
}

func (s *slowLetters) RedriveBy(context.Context, uint32, []ident.ID, jobs.Redriving) ([]durable.OpenJob, error) {
	return nil, nil
}

func (s *slowLetters) Owns(uint32) bool { return true }
func (s *slowLetters) NowMs() int64     { return 1 }

// newSlow returns a runner with redrives of consumers of two channels: many of the one, and one of the other. It
// returns the number of the one consumer of the other.
func newSlow(t *testing.T, consumers, each int) (r *Runner, s *slowLetters, other uint32) {
	folder := t.TempDir()
	tables.SQLite(t, folder)
	store, err := durable.OpenSQLite(t.Context(), folder, durable.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	s = &slowLetters{}
	pull := durable.Pull
	put := func(channel, id string, n int) (no uint32) {
		_, _, err := store.PutChannel(t.Context(), durable.Put{ID: channel, NewToken: "t"})
		require.NoError(t, err)
		k, _, err := store.PutConsumer(t.Context(), durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"},
			ChannelID: channel, Type: &pull})
		require.NoError(t, err)
		for i := range n {
			s.redrives = append(s.redrives, durable.Redriving{No: uint32(i + 1), State: durable.RedriveRunning, Busy: true,
				DeadSelection: durable.DeadSelection{ConsumerNo: k.No}})
		}
		return k.No
	}
	for i := range consumers {
		put("many", fmt.Sprintf("k%d", i), each)
	}
	other = put("one", "k", 1)
	c := catalogue.New(store, slog.New(slog.DiscardHandler))
	require.NoError(t, c.Refresh(t.Context()))
	return New(Options{Store: s, Jobs: s, Catalogue: c, Cluster: s, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.DiscardHandler)}), s, other
}

// However many redrives a channel has, those of another one go on after a turn, and each has its own.
func TestManyRedrivesOfOneChannelDelayNoOther(t *testing.T) {
	const consumers, each = 3, 4
	r, s, other := newSlow(t, consumers, each)
	s.takes = 20 * time.Millisecond
	went := map[uint32]int{}
	for range consumers * each {
		s.steps = nil
		busy, err := r.round(t.Context())
		require.NoError(t, err)
		require.True(t, busy)
		mine, others := 0, 0
		for _, no := range s.steps {
			if went[no]++; no == other {
				mine++
			} else {
				others++
			}
		}
		require.Positive(t, mine)
		require.LessOrEqual(t, others, int(turn/s.takes)+1)
	}
	for no, n := range went { // each redrive had a turn
		require.GreaterOrEqual(t, n, map[bool]int{true: 1, false: each}[no == other], "consumer %d", no)
	}
	require.Len(t, went, consumers+1)
}

// A page of redrives that ends within those of a consumer, or has those of one alone, leaves none out.
func TestEachRedriveIsFoundBehindAFullPage(t *testing.T) {
	for _, of := range [][2]int{{40, 13}, {1, listed}, {1, 2*listed + 1}, {2, listed + 7}} {
		r, s, _ := newSlow(t, of[0], of[1])
		all, err := r.mine(t.Context())
		require.NoError(t, err)
		require.Len(t, all, len(s.redrives))
		found := map[key]bool{}
		for _, w := range all {
			found[w.id()] = true
		}
		require.Len(t, found, len(s.redrives))
	}
}
