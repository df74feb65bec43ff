package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var tokenTests = map[string]func(*testing.T, *fixture){
	"an API token is among the changes of the catalogue until it is deleted": func(t *testing.T, f *fixture) {
		f.channel(t, "c", 0)
		before, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.True(t, before.NewTokens, "all rows are asked for")
		digest := strings.Repeat("\x00\xff", 16)
		a, err := f.CreateAPIToken(f.ctx, durable.APIToken{ID: "a", Name: "für CI", Scopes: "channel:c dlq", Digest: digest,
			KeyID: "k"}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, a.CreatedMs+time.Hour.Milliseconds(), a.ExpiresMs)
		b, err := f.CreateAPIToken(f.ctx, durable.APIToken{ID: "b", Name: "b", Scopes: "dlq", Digest: digest}, 0)
		require.NoError(t, err)
		require.Zero(t, b.ExpiresMs)
		_, err = f.CreateAPIToken(f.ctx, b, 0)
		require.Error(t, err, "an ID is given once")

		news, err := f.Changes(f.ctx, before.Version)
		require.NoError(t, err)
		require.True(t, news.NewTokens)
		require.Equal(t, []durable.APIToken{a, b}, news.Tokens)
		_, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		later, err := f.Changes(f.ctx, news.Version)
		require.NoError(t, err)
		require.False(t, later.NewTokens, "another change does not read the tokens again")
		require.Empty(t, later.Tokens)
		first, err := f.Extent(f.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 2, first.Tokens.Rows)

		require.NoError(t, f.UsedAPITokens(f.ctx, map[string]int64{"a": 77, "gone": 5}))
		require.NoError(t, f.UsedAPITokens(f.ctx, map[string]int64{"a": 70}), "an older use is none")
		list, err := f.APITokens(f.ctx, "a", 1)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.EqualValues(t, 77, list[0].UsedMs)
		list, err = f.APITokens(f.ctx, "aa", 10)
		require.NoError(t, err)
		require.Equal(t, []durable.APIToken{b}, list)

		require.NoError(t, f.DeleteAPIToken(f.ctx, "a"))
		require.ErrorIs(t, f.DeleteAPIToken(f.ctx, "a"), durable.ErrNotFound)
		last, err := f.Changes(f.ctx, later.Version)
		require.NoError(t, err)
		require.True(t, last.NewTokens)
		require.Equal(t, []durable.APIToken{b}, last.Tokens)
		then, err := f.Extent(f.ctx)
		require.NoError(t, err)
		require.NotEqual(t, first.Tokens, then.Tokens)
	},
	"scopes end with the resource that they name": func(t *testing.T, f *fixture) {
		f.channel(t, "c", 1)
		f.channel(t, "cc", 0)
		_, _, err := f.PutGroup(f.ctx, durable.Put{ID: "g"})
		require.NoError(t, err)
		url := "http://127.0.0.1/"
		for _, id := range []string{"k", "kk"} {
			_, _, err = f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"}, ChannelID: "cc",
				CallbackURL: &url})
			require.NoError(t, err)
		}
		for id, scopes := range map[string]string{"a": "channel:cc", "b": "channel:c consumer:cc/k dlq group:g",
			"c": "consumer:cc/kk", "d": "group:g", "e": "group:gg management:read"} {
			_, err = f.CreateAPIToken(f.ctx, durable.APIToken{ID: id, Name: id, Scopes: scopes,
				Digest: strings.Repeat("\xff", 32)}, 0)
			require.NoError(t, err)
		}
		before, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		requireScopes := func(want ...string) {
			t.Helper()
			news, err := f.Changes(f.ctx, before.Version)
			require.NoError(t, err)
			require.True(t, news.NewTokens)
			before = news
			var have []string
			for _, token := range news.Tokens {
				have = append(have, token.ID+" "+token.Scopes)
			}
			require.Equal(t, want, have)
		}
		_, err = f.DeleteConsumer(f.ctx, "cc", durable.Put{ID: "k"})
		require.NoError(t, err)
		requireScopes("a channel:cc", "b channel:c dlq group:g", "c consumer:cc/kk", "d group:g",
			"e group:gg management:read")
		_, err = f.DeleteGroup(f.ctx, durable.Put{ID: "g"})
		require.NoError(t, err)
		requireScopes("a channel:cc", "b channel:c dlq", "c consumer:cc/kk", "e group:gg management:read")
		_, err = f.DeleteConsumer(f.ctx, "cc", durable.Put{ID: "kk"})
		require.NoError(t, err)
		requireScopes("a channel:cc", "b channel:c dlq", "e group:gg management:read")
		_, err = f.CreateAPIToken(f.ctx, durable.APIToken{ID: "f", Name: "f", Scopes: "consumer:cc/kk dlq",
			Digest: strings.Repeat("\xff", 32)}, 0) // of one that is none now
		require.NoError(t, err)
		_, err = f.DeleteChannel(f.ctx, durable.Put{ID: "cc"})
		require.NoError(t, err)
		requireScopes("b channel:c dlq", "e group:gg management:read", "f dlq")
	},
	"a rotation keeps the token before it until a time, and a put of a token ends that": func(t *testing.T, f *fixture) {
		exists, day := true, 24*time.Hour
		f.channel(t, "c", 1)
		url := "http://127.0.0.1/"
		_, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "p-1"})
		require.NoError(t, err)
		_, _, err = f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "k-1"}, ChannelID: "c",
			CallbackURL: &url})
		require.NoError(t, err)
		p, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "p-2", Rotate: &day, Exists: &exists})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, "p-2", p.Token)
		require.Equal(t, "p-1", p.FormerToken)
		require.InDelta(t, time.Now().Add(day).UnixMilli(), p.FormerUntilMs, float64(time.Hour.Milliseconds()))
		k, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "k-2", Rotate: &day,
			Exists: &exists}, ChannelID: "c"})
		require.NoError(t, err)
		require.Equal(t, "k-1", k.FormerToken)
		was, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "c-2", Rotate: &day, Exists: &exists})
		require.NoError(t, err)
		require.NotEmpty(t, was.FormerToken)

		all, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Contains(t, all.Producers, p)
		require.Contains(t, all.Channels, was)
		require.Contains(t, all.Consumers, k)

		name := "another name"
		p, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", Name: &name})
		require.NoError(t, err)
		require.Equal(t, "p-1", p.FormerToken, "another change keeps it")
		token := "p-3"
		p, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", Token: &token})
		require.NoError(t, err)
		require.Equal(t, durable.Former{}, p.Former)
		none := time.Duration(0)
		ch, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "c-3", Rotate: &none, Exists: &exists})
		require.NoError(t, err)
		require.Equal(t, durable.Former{}, ch.Former, "without an overlap the old one ends at once")
		_, _, err = f.PutProducer(f.ctx, durable.Put{ID: "none", NewToken: "x", Rotate: &day, Exists: &exists})
		require.ErrorIs(t, err, durable.ErrPrecondition)
	},
}
