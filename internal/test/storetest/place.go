package storetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// placeTests are about installations with several stores.
var placeTests = map[string]func(*testing.T, *fixture){
	"of several places of a channel one holds": func(t *testing.T, f *fixture) {
		_, err := f.PlaceOf(f.ctx, "c")
		require.ErrorIs(t, err, durable.ErrNotFound)
		var made atomic.Int32
		var held [5]durable.Place
		stores := []string{"", "two", "three", "four", "five"}
		race(5, func(i int) {
			place, first, err := f.PlaceChannel(f.ctx, durable.Place{ChannelID: "c", Store: stores[i], AtMs: int64(i + 1)})
			require.NoError(t, err)
			if held[i] = place; first {
				made.Add(1)
			}
		})
		require.EqualValues(t, 1, made.Load())
		for _, place := range held {
			require.Equal(t, held[0], place)
		}
		place, err := f.PlaceOf(f.ctx, "c")
		require.NoError(t, err)
		require.Equal(t, held[0], place)
	},
	"a place moves once, and is forgotten": func(t *testing.T, f *fixture) {
		held, made, err := f.PlaceChannel(f.ctx, durable.Place{ChannelID: "c", Store: "two", AtMs: 1})
		require.NoError(t, err)
		require.True(t, made)
		var moves atomic.Int32
		race(4, func(i int) {
			moved, err := f.MovePlace(f.ctx, held, "", int64(10+i))
			require.NoError(t, err)
			if moved {
				moves.Add(1)
			}
		})
		require.EqualValues(t, 1, moves.Load())
		require.NoError(t, f.ForgetPlace(f.ctx, held), "another one holds")
		now, err := f.PlaceOf(f.ctx, "c")
		require.NoError(t, err)
		require.Empty(t, now.Store)
		require.NoError(t, f.ForgetPlace(f.ctx, now))
		_, err = f.PlaceOf(f.ctx, "c")
		require.ErrorIs(t, err, durable.ErrNotFound)
	},
	"the stores that have channels are listed": func(t *testing.T, f *fixture) {
		for i, store := range []string{"two", "", "three", "two"} {
			_, _, err := f.PlaceChannel(f.ctx, durable.Place{ChannelID: string(rune('a' + i)), Store: store, AtMs: 1})
			require.NoError(t, err)
		}
		placed, err := f.PlacedStores(f.ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"two", "three"}, placed)
	},
	"producers and groups of another store are adopted with their numbers": func(t *testing.T, f *fixture) {
		changes := func() durable.Changes {
			c, err := f.Changes(f.ctx, 0)
			require.NoError(t, err)
			return c
		}
		p := durable.Producer{No: 70, ID: "p", Name: "P", Token: "token", ChangedAt: time.UnixMilli(5000).UTC(),
			PublishSecret: "secret", Settings: "", Former: durable.Former{FormerToken: "old", FormerUntilMs: 9}}
		g := durable.Group{No: 30, ID: "g", Name: "g", MaxChannels: 2, Paused: true, ChangedAt: time.UnixMilli(6000).UTC()}
		adopt := func(version int64, p durable.Producer, g durable.Group) {
			require.NoError(t, f.Adopt(f.ctx, durable.Shared{Version: version, Producers: []durable.Producer{p},
				Groups: []durable.Group{g}}))
		}
		adopt(10, p, g)
		got := changes()
		require.Len(t, got.Producers, 1)
		require.True(t, got.Producers[0].SameAs(&p), got.Producers[0])
		require.True(t, got.Groups[0].SameAs(&g), got.Groups[0])

		group := "g"
		ch, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "t", Group: &group})
		require.NoError(t, err)
		require.True(t, ch.GroupPaused)
		next, later := p, g
		next.Name, next.Token, next.FormerToken, later.Paused, later.MaxChannels = "Q", "other", "token", false, 0
		got = changes()
		adopt(9, next, later)
		require.Equal(t, got.Version, changes().Version, "an older version changes nothing")
		adopt(11, next, later)
		got = changes()
		require.True(t, got.Producers[0].SameAs(&next))
		require.True(t, got.Groups[0].SameAs(&later))
		require.False(t, got.Channels[0].GroupPaused, "the pause of a group is in its channels too")

		next.Deleted = true
		again := p
		again.No = 71
		require.NoError(t, f.Adopt(f.ctx, durable.Shared{Version: 12, Producers: []durable.Producer{again, next}}))
		got = changes()
		require.Len(t, got.Producers, 2)
		require.True(t, got.Producers[0].Deleted)
		require.True(t, got.Producers[1].SameAs(&again))
		made, _, err := f.PutProducer(f.ctx, durable.Put{ID: "own", NewToken: "t"})
		require.NoError(t, err)
		require.EqualValues(t, 72, made.No)
	},
	"API tokens of another store are adopted as they are": func(t *testing.T, f *fixture) {
		_, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "t"})
		require.NoError(t, err)
		token := func(id, scopes string) durable.APIToken {
			return durable.APIToken{ID: id, Name: id, Scopes: scopes, Digest: string(make([]byte, 32)), CreatedMs: 5}
		}
		all := []durable.APIToken{token("a", "channel:c dlq"), token("b", "consumer:c/k"), token("d", "dlq")}
		require.NoError(t, f.Adopt(f.ctx, durable.Shared{Version: 3, Tokens: all}))
		require.NoError(t, f.Adopt(f.ctx, durable.Shared{Version: 4}))
		got, err := f.APITokens(f.ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, got, 3)
		for i := range got {
			require.True(t, got[i].SameAs(&all[i]))
		}
		require.NoError(t, f.EndScopes(f.ctx, "c", ""))
		got, err = f.APITokens(f.ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, []string{"dlq", "dlq"}, []string{got[0].Scopes, got[1].Scopes})
		before := got
		require.NoError(t, f.Adopt(f.ctx, durable.Shared{Version: 5, Tokens: []durable.APIToken{}}))
		got, err = f.APITokens(f.ctx, "", 10)
		require.NoError(t, err)
		require.Empty(t, got, before)
	},
	"a secret is that of another store, or refused": func(t *testing.T, f *fixture) {
		secret := []byte("0123456789abcdef0123456789abcdef")
		require.NoError(t, f.AdoptSecret(f.ctx, "links", secret))
		require.NoError(t, f.AdoptSecret(f.ctx, "links", secret))
		kept, err := f.Secret(f.ctx, "links")
		require.NoError(t, err)
		require.Equal(t, secret, kept)
		require.ErrorIs(t, f.AdoptSecret(f.ctx, "links", []byte("1123456789abcdef0123456789abcdef")),
			durable.ErrOtherSecret)
	},
	"numbers begin behind those of other stores": func(t *testing.T, f *fixture) {
		require.NoError(t, f.Touch(f.ctx, durable.Numbers{Channel: 1 << 26, Consumer: 1 << 26}))
		ch, ks := f.channel(t, "c", 1)
		require.EqualValues(t, 1<<26+1, ch.No)
		require.EqualValues(t, 1<<26+1, ks[0].No)
		m := f.message(ch)
		f.insert(t, m)
		require.Len(t, f.stored(t, []*durable.Message{m}), 1)
	},
}
