package storetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// hold holds a consumer in its present state and reports whether that was stored.
func (f *fixture) hold(t *testing.T, k durable.Consumer, untilMs int64) bool {
	kept, err := f.KeepHolds(f.ctx, []durable.Hold{{ConsumerNo: k.No, SinceMs: 1000, UntilMs: untilMs, By: "503",
		Version: k.Version}})
	require.NoError(t, err)
	return kept[0]
}

// heldUntil returns the end of a hold, 0 where there is none.
func (f *fixture) heldUntil(t *testing.T, k durable.Consumer) int64 {
	h, err := f.HoldOf(f.ctx, k.No)
	require.NoError(t, err)
	return h.UntilMs
}

var holdTests = map[string]func(*testing.T, *fixture){
	"a hold is kept until its end, and a longer one stays": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 3)
		require.True(t, f.hold(t, ks[1], 9000))
		require.True(t, f.hold(t, ks[1], 5000))
		require.True(t, f.hold(t, ks[0], 4000))
		holds, err := f.Holds(f.ctx, 4000)
		require.NoError(t, err)
		require.Equal(t, []durable.Hold{{ConsumerNo: ks[1].No, SinceMs: 1000, UntilMs: 9000, By: "503"}}, holds)
		require.NoError(t, f.EndHolds(f.ctx, []uint32{ks[1].No, ks[2].No}))
		require.Zero(t, f.heldUntil(t, ks[1]))
		require.EqualValues(t, 4000, f.heldUntil(t, ks[0]), "that of another consumer")
		require.NoError(t, f.EndHolds(f.ctx, nil))
	},
	"brokers hold a consumer at the same time, and the latest end counts": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 3)
		race(8, func(i int) {
			var all []durable.Hold
			for j := range ks {
				k := ks[(i+j)%len(ks)]
				all = append(all, durable.Hold{ConsumerNo: k.No, SinceMs: 1, UntilMs: int64(1000 + i), By: strings.Repeat("é", 200),
					Version: k.Version})
			}
			kept, err := f.KeepHolds(f.ctx, all)
			require.NoError(t, err)
			require.Equal(t, []bool{true, true, true}, kept)
		})
		for _, k := range ks {
			h, err := f.HoldOf(f.ctx, k.No)
			require.NoError(t, err)
			require.EqualValues(t, 1007, h.UntilMs)
			require.Equal(t, strings.Repeat("é", 127), h.By)
		}
	},
	"an answer to a former address, caller or state holds nobody": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		seen := ks[0]
		url := "http://x/new"
		_, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: seen.ID}, ChannelID: "c",
			CallbackURL: &url})
		require.NoError(t, err)
		require.False(t, f.hold(t, seen, 9000))
		require.Zero(t, f.heldUntil(t, seen))
		seen.No += 1000
		require.False(t, f.hold(t, seen, 9000), "there is no such consumer")
	},
	"a hold ends with what it is about": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		k := ks[0]
		put := func(p durable.ConsumerPut) {
			p.ID, p.ChannelID = k.ID, "c"
			_, _, err := f.PutConsumer(f.ctx, p)
			require.NoError(t, err)
		}
		record := func(text string) func(string) (string, error) {
			return func(string) (string, error) { return text, nil }
		}
		url, token, protocol, name := "http://x/1", "other", "h2", "a name"
		for _, tc := range []struct {
			what string
			ends bool
			do   func()
		}{
			{"callback URL", true, func() { put(durable.ConsumerPut{CallbackURL: &url}) }},
			{"protocol", true, func() { put(durable.ConsumerPut{Protocol: &protocol}) }},
			{"token", true, func() { put(durable.ConsumerPut{Put: durable.Put{Token: &token}}) }},
			{"credentials", true, func() {
				put(durable.ConsumerPut{Policy: record(`{"authorization":"oauth2 http://x/t a b","v":"1"}`)})
			}},
			{"token endpoint", true, func() {
				put(durable.ConsumerPut{Policy: record(`{"authorization":"oauth2 http://x/u a b","v":"1"}`)})
			}},
			{"rate", false, func() {
				put(durable.ConsumerPut{Policy: record(`{"authorization":"oauth2 http://x/u a b","rateLimit":"1/1s","v":"1"}`)})
			}},
			{"name", false, func() { put(durable.ConsumerPut{Put: durable.Put{Name: &name}}) }},
		} {
			k = f.consumerState(t, k.No)
			require.True(t, f.hold(t, k, 9000), tc.what)
			tc.do()
			require.Equal(t, tc.ends, f.heldUntil(t, k) == 0, tc.what)
		}
	},
	"the word of a person ends a hold, whatever the state is": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		k := ks[0]
		all := []durable.ConsumerState{durable.StateActive, durable.StatePaused, durable.StateDead, durable.StateGone,
			durable.StateProbing}
		for _, state := range all {
			k = f.to(t, k, k.State, state, "")
			require.True(t, f.hold(t, k, 9000))
			_, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
				From: []durable.ConsumerState{durable.StateDeleted}, To: durable.StateActive})
			require.NoError(t, err)
			require.False(t, changed)
			require.EqualValues(t, 9000, f.heldUntil(t, k), "a broker")
			_, changed, err = f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No,
				From: []durable.ConsumerState{durable.StateDeleted}, To: durable.StateActive, Release: true})
			require.NoError(t, err)
			require.False(t, changed)
			require.Zero(t, f.heldUntil(t, k), "a person")
		}
		require.True(t, f.hold(t, k, 9000))
		_, changed, err := f.SetConsumerState(f.ctx, durable.StateChange{ConsumerNo: k.No, From: all, To: durable.StateActive,
			Release: true})
		require.NoError(t, err)
		require.True(t, changed)
		require.Zero(t, f.heldUntil(t, k))
	},
	"a hold ends with its consumer": func(t *testing.T, f *fixture) {
		_, ks := f.channel(t, "c", 1)
		require.True(t, f.hold(t, ks[0], 9000))
		_, err := f.DeleteConsumer(f.ctx, "c", durable.Put{ID: ks[0].ID})
		require.NoError(t, err)
		require.Zero(t, f.heldUntil(t, ks[0]))
	},
}
