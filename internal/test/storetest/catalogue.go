package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

var catalogueTests = map[string]func(*testing.T, *fixture){
	"three brokers may migrate at once and again": func(t *testing.T, f *fixture) {
		race(3, func(int) { require.NoError(t, f.Migrate(f.ctx)) })
		f.channel(t, "c", 1)
	},
	"a migrated store reports its product and its clock": func(t *testing.T, f *fixture) {
		require.NoError(t, f.Ping(f.ctx))
		require.NotEmpty(t, f.Describe())
		a, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		require.InDelta(t, time.Now().UnixMilli(), a, 60_000)
		require.Positive(t, f.MaxBatchBytes())
		require.LessOrEqual(t, f.MaxBatchBytes(), 8<<20)
	},
	"a put creates with defaults, then updates only what it names": func(t *testing.T, f *fixture) {
		p, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "fresh"})
		require.NoError(t, err)
		require.True(t, created)
		require.Equal(t, "p", p.Name)
		require.Equal(t, "fresh", p.Token)
		require.NotZero(t, p.No)
		require.False(t, p.ChangedAt.IsZero())

		q, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", Name: ptr("Näme"), NewToken: "other"})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, p.No, q.No)
		require.Equal(t, "Näme", q.Name)
		require.Equal(t, "fresh", q.Token, "an absent token keeps the old one")
		require.Greater(t, q.Version, p.Version)

		r, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", Token: ptr("rotated")})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, "Näme", r.Name)
		require.Equal(t, "rotated", r.Token)

		signs, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", PublishSecret: ptr("secret")})
		require.NoError(t, err)
		require.Equal(t, "secret", signs.PublishSecret)
		require.True(t, signs.ChangedAt.After(p.ChangedAt), "brokers learn it")
		signs, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", Token: ptr("again")})
		require.NoError(t, err)
		require.Equal(t, "secret", signs.PublishSecret)
		changes, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, "secret", changes.Producers[0].PublishSecret)
	},
	"channels and consumers merge like producers": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		ch2, created, err := f.PutChannel(f.ctx, durable.Put{ID: "c", Name: ptr("C")})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, ch.No, ch2.No)
		require.Equal(t, "t", ch2.Token)

		put := consumerPut("c", "k")
		k, _, err := f.PutConsumer(f.ctx, put)
		require.NoError(t, err)
		require.Equal(t, durable.Push, k.Type)
		k2, created, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: "k"}, ChannelID: "c",
			Type: ptr(durable.Pull), Protocol: ptr("h2")})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, *put.CallbackURL, k2.CallbackURL)
		require.Equal(t, durable.Pull, k2.Type)
		require.Equal(t, "h2", k2.Protocol)
		require.Equal(t, k.Position, k2.Position)
	},
	"created is true for one of several racing creators": func(t *testing.T, f *fixture) {
		var producers, channels, consumers atomic.Int32
		count := func(n *atomic.Int32, created bool, err error) {
			if err != nil {
				t.Error(err)
			}
			if created {
				n.Add(1)
			}
		}
		race(12, func(int) {
			_, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
			count(&producers, created, err)
			_, created, err = f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "t"})
			count(&channels, created, err)
			_, created, err = f.PutConsumer(f.ctx, consumerPut("c", "k"))
			count(&consumers, created, err)
		})
		require.Equal(t, []int32{1, 1, 1}, []int32{producers.Load(), channels.Load(), consumers.Load()})
	},
	"racing creators of different consumers get dense positions": func(t *testing.T, f *fixture) {
		f.channel(t, "c", 0)
		race(10, func(i int) {
			if _, _, err := f.PutConsumer(f.ctx, consumerPut("c", fmt.Sprint("k", i))); err != nil {
				t.Error(err)
			}
		})
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, 10, c.Channels[0].Audience)
		seen := map[int]bool{}
		for _, k := range c.Consumers {
			seen[k.Position] = true
			require.Less(t, k.Position, 10)
		}
		require.Len(t, seen, 10)
	},
	"IDs are bytes: case, spaces and wildcards are different resources": func(t *testing.T, f *fixture) {
		all := []string{"abc", "ABC", "abc ", " abc", "a_c", "a%c", "%", "_", "äbc", "abc\x00", "'; DROP TABLE channels; --",
			`a\`, "\xff\xfe", strings.Repeat("x", 255)}
		numbers := map[uint32]string{}
		for _, id := range all {
			p, created, err := f.PutProducer(f.ctx, durable.Put{ID: id, Name: ptr("n"), NewToken: "t\x00'\\\xff"})
			require.NoError(t, err)
			require.Truef(t, created, "%q", id)
			numbers[p.No] = id
			_, created, err = f.PutChannel(f.ctx, durable.Put{ID: id, Name: ptr("n")})
			require.NoError(t, err)
			require.Truef(t, created, "%q", id)
		}
		require.Len(t, numbers, len(all))
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Len(t, c.Producers, len(all))
		for _, p := range c.Producers {
			require.Equal(t, numbers[p.No], p.ID)
			require.Equal(t, "t\x00'\\\xff", p.Token)
		}
	},
	"the same consumer ID in two channels is two consumers": func(t *testing.T, f *fixture) {
		_, a := f.channel(t, "a", 1)
		_, b := f.channel(t, "b", 1)
		require.Equal(t, a[0].ID, b[0].ID)
		require.NotEqual(t, a[0].No, b[0].No)
		require.NotEqual(t, a[0].ChannelNo, b[0].ChannelNo)
	},
	"values that no column can hold are rejected": func(t *testing.T, f *fixture) {
		long := strings.Repeat("x", 256)
		for _, p := range []durable.Put{{ID: ""}, {ID: long}, {ID: "p", Name: &long}, {ID: "p", Token: &long},
			{ID: "p", Name: ptr("\xff")}} {
			_, _, err := f.PutProducer(f.ctx, p)
			require.ErrorIs(t, err, durable.ErrRejected)
			_, _, err = f.PutChannel(f.ctx, p)
			require.ErrorIs(t, err, durable.ErrRejected)
		}
		f.channel(t, "c", 0)
		put := consumerPut("c", "k")
		put.CallbackURL = ptr(strings.Repeat("x", 4097))
		_, _, err := f.PutConsumer(f.ctx, put)
		require.ErrorIs(t, err, durable.ErrRejected)
	},
	"a stale precondition is refused, in whole seconds": func(t *testing.T, f *fixture) {
		p, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		_, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", Name: ptr("x"), UnmodifiedSince: p.ChangedAt.Add(-time.Second)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, created, err := f.PutProducer(f.ctx, durable.Put{ID: "p", Name: ptr("x"),
			UnmodifiedSince: p.ChangedAt.Truncate(time.Second)})
		require.NoError(t, err)
		require.False(t, created)
		ch, _ := f.channel(t, "c", 0)
		_, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", Name: ptr("x"), UnmodifiedSince: ch.ChangedAt.Add(-time.Hour)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		put := consumerPut("c", "k")
		_, _, err = f.PutConsumer(f.ctx, put)
		require.NoError(t, err)
		put.UnmodifiedSince = ch.ChangedAt.Add(-time.Hour)
		_, _, err = f.PutConsumer(f.ctx, put)
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, created, err = f.PutChannel(f.ctx, durable.Put{ID: "new", UnmodifiedSince: time.Unix(1, 0)})
		require.NoError(t, err, "a missing resource passes UnmodifiedSince")
		require.True(t, created)
	},
	"one of several writers with the same precondition passes": func(t *testing.T, f *fixture) {
		f.channel(t, "c", 1)
		p, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t"})
		require.NoError(t, err)
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		for name, kind := range map[string]struct {
			changed time.Time
			put     func(durable.Put) (time.Time, error)
		}{
			"producer": {p.ChangedAt, func(p durable.Put) (time.Time, error) {
				p.ID = "p"
				out, _, err := f.PutProducer(f.ctx, p)
				return out.ChangedAt, err
			}},
			"channel": {c.Channels[0].ChangedAt, func(p durable.Put) (time.Time, error) {
				p.ID = "c"
				out, _, err := f.PutChannel(f.ctx, p)
				return out.ChangedAt, err
			}},
			"consumer": {c.Consumers[0].ChangedAt, func(p durable.Put) (time.Time, error) {
				p.ID = c.Consumers[0].ID
				out, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: p, ChannelID: "c"})
				return out.ChangedAt, err
			}},
		} {
			changed := kind.changed
			for round := range 4 {
				precondition := durable.Put{Revision: changed}
				if round%2 == 1 {
					precondition = durable.Put{UnmodifiedSince: changed.Truncate(time.Second)}
				}
				errs := make([]error, 8)
				times := make([]time.Time, len(errs))
				race(len(errs), func(i int) {
					put := precondition
					put.Name = ptr(fmt.Sprintf("%d by %d", round, i))
					times[i], errs[i] = kind.put(put)
				})
				passed := 0
				for i, err := range errs {
					if err == nil {
						passed++
						require.Greater(t, times[i].Unix(), changed.Unix(), "a change has a second of its own")
						changed = times[i]
						continue
					}
					require.ErrorIs(t, err, durable.ErrPrecondition)
				}
				require.Equal(t, 1, passed, "%s, round %d", name, round)
			}
		}
	},
	"two writers with the clock as their date do not both pass": func(t *testing.T, f *fixture) {
		for i := range 5 {
			id := fmt.Sprint("p", i)
			now, err := f.NowMs(f.ctx)
			require.NoError(t, err)
			date := time.UnixMilli(now).Truncate(time.Second)
			_, _, err = f.PutProducer(f.ctx, durable.Put{ID: id, NewToken: "t", UnmodifiedSince: date})
			require.NoError(t, err)
			_, _, err = f.PutProducer(f.ctx, durable.Put{ID: id, Name: ptr("x"), UnmodifiedSince: date})
			require.ErrorIs(t, err, durable.ErrPrecondition)
		}
	},
	"a precondition may require that a resource exists, or does not": func(t *testing.T, f *fixture) {
		put := durable.Put{ID: "p", NewToken: "t", Exists: ptr(true)}
		_, _, err := f.PutProducer(f.ctx, put)
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "t", Revision: time.UnixMilli(0)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		put.Exists = ptr(false)
		_, created, err := f.PutProducer(f.ctx, put)
		require.NoError(t, err)
		require.True(t, created)
		_, _, err = f.PutProducer(f.ctx, put)
		require.ErrorIs(t, err, durable.ErrPrecondition)
		put.Exists = ptr(true)
		_, created, err = f.PutProducer(f.ctx, put)
		require.NoError(t, err)
		require.False(t, created)
	},
	"a policy is merged inside the change, and every copy sees it": func(t *testing.T, f *fixture) {
		_, consumers := f.channel(t, "c", 1)
		id := consumers[0].ID
		race(8, func(i int) { // each adds a letter to the stored policy
			_, _, err := f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: id}, ChannelID: "c",
				Policy: func(record string) (string, error) { return record + string(rune('a'+i)), nil }})
			require.NoError(t, err)
		})
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Len(t, c.Consumers[0].Policy, 8, "no change was lost")
		refused := errors.New("refused")
		_, _, err = f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: id, Name: ptr("other")}, ChannelID: "c",
			Policy: func(string) (string, error) { return "", refused }})
		require.ErrorIs(t, err, refused)
		again, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, c, again, "nothing was stored")
		_, _, err = f.PutConsumer(f.ctx, durable.ConsumerPut{Put: durable.Put{ID: id}, ChannelID: "c",
			Policy: func(string) (string, error) { return strings.Repeat("x", 16385), nil }})
		require.ErrorIs(t, err, durable.ErrRejected)
	},
	"a consumer needs a channel, and a push consumer a callback": func(t *testing.T, f *fixture) {
		_, _, err := f.PutConsumer(f.ctx, consumerPut("nowhere", "k"))
		require.ErrorIs(t, err, durable.ErrNotFound)
		f.channel(t, "c", 0)
		bare := durable.ConsumerPut{Put: durable.Put{ID: "k"}, ChannelID: "c"}
		_, _, err = f.PutConsumer(f.ctx, bare)
		require.ErrorIs(t, err, durable.ErrConsumerInvalid)
		bare.Type = ptr(durable.Pull)
		_, created, err := f.PutConsumer(f.ctx, bare)
		require.NoError(t, err)
		require.True(t, created)
		bare.Type = ptr(durable.Push)
		_, _, err = f.PutConsumer(f.ctx, bare)
		require.ErrorIs(t, err, durable.ErrConsumerInvalid)
		c, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Equal(t, 1, c.Channels[0].Audience, "a refused consumer takes no position")
	},
	"changes are the rows written after a version": func(t *testing.T, f *fixture) {
		c0, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		require.Empty(t, c0.Producers)
		ch, _ := f.channel(t, "c", 0)
		c1, err := f.Changes(f.ctx, c0.Version)
		require.NoError(t, err)
		require.Equal(t, []durable.Channel{ch}, c1.Channels)
		require.Empty(t, c1.Consumers)

		k, _, err := f.PutConsumer(f.ctx, consumerPut("c", "k"))
		require.NoError(t, err)
		c2, err := f.Changes(f.ctx, c1.Version)
		require.NoError(t, err)
		require.Equal(t, []durable.Consumer{k}, c2.Consumers)
		require.Len(t, c2.Channels, 1)
		require.Equal(t, 1, c2.Channels[0].Audience)
		require.Equal(t, ch.ChangedAt, c2.Channels[0].ChangedAt, "a new consumer does not spoil the channel's precondition")

		c3, err := f.Changes(f.ctx, c2.Version)
		require.NoError(t, err)
		require.Equal(t, durable.Changes{Version: c2.Version}, c3)
		ahead, err := f.Changes(f.ctx, c2.Version+100)
		require.NoError(t, err)
		require.Len(t, ahead.Channels, 1, "a version from the future means another database, so all rows are returned")
	},
	"a put that changes nothing keeps the version": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 0)
		again, created, err := f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "unused"})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, ch, again)
		c, err := f.Changes(f.ctx, ch.Version)
		require.NoError(t, err)
		require.Equal(t, ch.Version, c.Version)
	},
	"a reader that follows the version misses no change of racing writers": func(t *testing.T, f *fixture) {
		const writers, each = 4, 10
		done := make(chan struct{})
		go func() {
			defer close(done)
			race(writers, func(w int) {
				for i := range each {
					if _, _, err := f.PutProducer(f.ctx, durable.Put{ID: fmt.Sprintf("p%d-%d", w, i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}()
		seen := map[string]bool{}
		var version int64
		for last := false; ; {
			c, err := f.Changes(f.ctx, version)
			require.NoError(t, err)
			version = c.Version
			for _, p := range c.Producers {
				seen[p.ID] = true
			}
			if last {
				break
			}
			select {
			case <-done:
				last = true
			default:
			}
		}
		require.Len(t, seen, writers*each)
	},
}
