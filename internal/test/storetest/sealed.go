package storetest

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/atrest"
)

// sealKey returns a key of 32 bytes.
func sealKey(b byte) []byte { return append(bytes.Repeat([]byte{9}, 31), b) }

// guardAll stores a resource of each kind with all that is sealed, and returns what the store says of them.
func (f *fixture) guardAll(t *testing.T) durable.Changes {
	t.Helper()
	day := 24 * time.Hour
	settings := func(string) (string, error) { return "signingSecret=producer-secret", nil }
	_, _, err := f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "p-1", PublishSecret: ptr("publish-secret"),
		Settings: settings})
	require.NoError(t, err)
	_, _, err = f.PutProducer(f.ctx, durable.Put{ID: "p", NewToken: "p-2", Rotate: &day})
	require.NoError(t, err)
	_, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "c-1"})
	require.NoError(t, err)
	_, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "c-2", Rotate: &day})
	require.NoError(t, err)
	put := durable.ConsumerPut{Put: durable.Put{ID: "k", NewToken: "k-1"}, ChannelID: "c", CallbackURL: ptr("http://k/"),
		Policy: func(string) (string, error) { return "authorization=bearer credential", nil }}
	_, _, err = f.PutConsumer(f.ctx, put)
	require.NoError(t, err)
	put.Put, put.Policy = durable.Put{ID: "k", NewToken: "k-2", Rotate: &day}, nil
	_, _, err = f.PutConsumer(f.ctx, put)
	require.NoError(t, err)
	_, err = f.CreateSQSKey(f.ctx, "c", durable.SQSKey{ID: "AK", Secret: "sqs-secret"})
	require.NoError(t, err)
	f.shared, err = f.Secret(f.ctx, "of brokers")
	require.NoError(t, err)
	return f.guarded(t)
}

// guarded returns the resources, which are those of guardAll.
func (f *fixture) guarded(t *testing.T) durable.Changes {
	t.Helper()
	all, err := f.Changes(f.ctx, 0)
	require.NoError(t, err)
	require.NoError(t, f.CheckKeys(f.ctx))
	p, c, k := all.Producers[0], all.Channels[0], all.Consumers[0]
	require.Equal(t, []string{"p-2", "p-1", "publish-secret", "signingSecret=producer-secret"}, []string{p.Token,
		p.FormerToken, p.PublishSecret, p.Settings})
	require.Equal(t, []string{"c-2", "c-1"}, []string{c.Token, c.FormerToken})
	require.Equal(t, []string{"k-2", "k-1", "authorization=bearer credential"}, []string{k.Token, k.FormerToken, k.Policy})
	key, err := f.SQSKey(f.ctx, "AK")
	require.NoError(t, err)
	require.Equal(t, "sqs-secret", key.Secret)
	shared, err := f.Secret(f.ctx, "of brokers")
	require.NoError(t, err)
	require.Equal(t, f.shared, shared)
	return all
}

// unread requires that no resource can be read.
func (f *fixture) unread(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, f.CheckKeys(f.ctx), durable.ErrKeys)
	_, err := f.Changes(f.ctx, 0)
	require.ErrorIs(t, err, durable.ErrKeys)
	require.ErrorIs(t, err, atrest.ErrKey)
	_, err = f.SQSKey(f.ctx, "AK")
	require.ErrorIs(t, err, durable.ErrKeys)
	_, err = f.Secret(f.ctx, "of brokers")
	require.ErrorIs(t, err, durable.ErrKeys, "no other one is made")
	_, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", Name: ptr("C")})
	require.ErrorIs(t, err, durable.ErrKeys, "a row that is not read is not written over")
	_, err = f.Reencrypt(f.ctx, func(durable.Reencryption) {})
	require.ErrorIs(t, err, durable.ErrKeys)
}

func (f *fixture) reencrypt(t *testing.T) durable.Reencryption {
	t.Helper()
	r, err := f.Reencrypt(f.ctx, func(durable.Reencryption) {})
	require.NoError(t, err)
	require.Zero(t, r.Missed)
	return r
}

var sealedTests = map[string]func(*testing.T, *fixture){
	"what is secret is sealed with a key, and read with that key alone": func(t *testing.T, f *fixture) {
		f.UseKeys(atrest.NewKeys(sealKey(1), nil))
		before := f.guardAll(t)
		for _, other := range []*atrest.Keys{nil, atrest.NewKeys(sealKey(2), nil)} {
			f.UseKeys(other)
			f.unread(t)
		}
		f.UseKeys(atrest.NewKeys(sealKey(2), sealKey(1)))
		require.Equal(t, before, f.guarded(t), "nothing has changed")
		ch, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", Name: ptr("C")})
		require.NoError(t, err)
		require.Equal(t, "c-2", ch.Token)
	},

	"all rows are sealed with the present key, plain ones too, and once": func(t *testing.T, f *fixture) {
		before := f.guardAll(t)
		for i := range 120 { // more than a page
			_, _, err := f.PutProducer(f.ctx, durable.Put{ID: "more" + strconv.Itoa(i), NewToken: fmt.Sprintf("t-%d", i)})
			require.NoError(t, err)
		}
		rows := 120 + 5
		for _, keys := range [][2][]byte{{sealKey(1), nil}, {sealKey(2), sealKey(1)}} {
			f.UseKeys(atrest.NewKeys(keys[0], keys[1]))
			pages := 0
			r, err := f.Reencrypt(f.ctx, func(durable.Reencryption) { pages++ })
			require.NoError(t, err)
			require.Equal(t, durable.Reencryption{Rows: rows, Changed: rows}, r)
			require.Greater(t, pages, 4)
			require.Equal(t, durable.Reencryption{Rows: rows}, f.reencrypt(t), "a repeat has nothing to do")
			f.UseKeys(atrest.NewKeys(keys[0], nil))
			after := f.guarded(t)
			require.Equal(t, before.Channels, after.Channels)
			require.Len(t, after.Producers, 121)
		}
		f.UseKeys(atrest.NewKeys(sealKey(1), nil))
		f.unread(t)
		f.UseKeys(atrest.NewKeys(sealKey(2), nil).Leaving())
		require.Equal(t, rows, f.reencrypt(t).Changed)
		f.UseKeys(nil)
		require.Equal(t, before.Consumers, f.guarded(t).Consumers)
		require.Zero(t, f.reencrypt(t).Changed)
	},

	"a secret of the brokers keeps their store shut to a broker without its key": func(t *testing.T, f *fixture) {
		keys := atrest.NewKeys(sealKey(1), nil)
		before, err := f.Secret(f.ctx, "before the key")
		require.NoError(t, err)
		f.UseKeys(keys)
		with, err := f.Secret(f.ctx, "with the key")
		require.NoError(t, err)
		f.UseKeys(nil) // another broker, which has no key yet
		still, err := f.Secret(f.ctx, "before the key")
		require.NoError(t, err)
		require.Equal(t, before, still)
		require.ErrorIs(t, f.CheckKeys(f.ctx), durable.ErrKeys)
		_, err = f.Secret(f.ctx, "with the key")
		require.ErrorIs(t, err, durable.ErrKeys)
		f.UseKeys(keys)
		require.Equal(t, durable.Reencryption{Rows: 2, Changed: 1}, f.reencrypt(t))
		for name, want := range map[string][]byte{"before the key": before, "with the key": with} {
			got, err := f.Secret(f.ctx, name)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	},

	"of tokens that are only compared digests are kept, from then on": func(t *testing.T, f *fixture) {
		f.guardAll(t)
		one := atrest.NewKeys(sealKey(1), nil).Digesting()
		f.UseKeys(one)
		ch, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c", Token: ptr("c-2"), Name: ptr("C")})
		require.NoError(t, err)
		require.Equal(t, "c-2", ch.Token, "the answer has what was brought")
		compared := func() (tokens []string) {
			all, err := f.Changes(f.ctx, 0)
			require.NoError(t, err)
			p, c, k := all.Producers[0], all.Channels[0], all.Consumers[0]
			require.Equal(t, []string{"k-2", "k-1", "publish-secret"}, []string{k.Token, k.FormerToken, p.PublishSecret},
				"these are sent or sign")
			return []string{p.Token, p.FormerToken, c.Token, c.FormerToken}
		}
		digests := []string{atrest.Digest("p-2"), atrest.Digest("p-1"), atrest.Digest("c-2"), atrest.Digest("c-1")}
		require.Equal(t, []string{"p-2", "p-1", digests[2], digests[3]}, compared(), "that row was written")
		require.Equal(t, durable.Reencryption{Rows: 5, Changed: 4, Digests: 4}, f.reencrypt(t))
		require.Equal(t, digests, compared())
		require.Equal(t, durable.Reencryption{Rows: 5, Digests: 4}, f.reencrypt(t), "a repeat has nothing to do")

		before, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		ch, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", Token: ptr("c-2")})
		require.NoError(t, err)
		require.Equal(t, before.Channels[0], ch, "the same token is no change")
		day := 24 * time.Hour
		ch, _, err = f.PutChannel(f.ctx, durable.Put{ID: "c", NewToken: "c-3", Rotate: &day})
		require.NoError(t, err)
		require.Equal(t, []string{"c-3", digests[2]}, []string{ch.Token, ch.FormerToken})
		digests[2], digests[3] = atrest.Digest("c-3"), digests[2]

		f.UseKeys(atrest.NewKeys(sealKey(2), sealKey(1)).Digesting())
		require.Equal(t, durable.Reencryption{Rows: 5, Changed: 5, Digests: 4}, f.reencrypt(t), "the same tokens")
		require.Equal(t, digests, compared())
		f.UseKeys(atrest.NewKeys(sealKey(2), nil))
		require.Equal(t, digests, compared(), "a broker that shows tokens reads digests")
		f.UseKeys(atrest.NewKeys(sealKey(2), nil).Digesting().Leaving())
		require.Equal(t, durable.Reencryption{Rows: 5, Changed: 5, Digests: 4}, f.reencrypt(t))
		f.UseKeys(nil)
		require.Equal(t, digests, compared(), "no digest becomes a token again")
	},

	"rows that change meanwhile keep what was written": func(t *testing.T, f *fixture) {
		const channels = 150
		written := make([]string, channels)
		write := func(i int, token string) error {
			_, _, err := f.PutChannel(f.ctx, durable.Put{ID: "c" + strconv.Itoa(i), Token: &token})
			written[i] = token
			return err
		}
		for i := range written {
			require.NoError(t, write(i, "before"))
		}
		f.UseKeys(atrest.NewKeys(sealKey(1), nil))
		done := make(chan error, 1)
		go func() {
			var err error
			for n := 0; n < channels && err == nil; n++ {
				err = write(n*7%channels, "t-"+strconv.Itoa(n))
			}
			done <- err
		}()
		var r durable.Reencryption
		for pass := 0; pass == 0 || r.Missed > 0; pass++ {
			var err error
			r, err = f.Reencrypt(f.ctx, func(durable.Reencryption) {})
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
		require.Zero(t, f.reencrypt(t).Changed)
		all, err := f.Changes(f.ctx, 0)
		require.NoError(t, err)
		for _, ch := range all.Channels {
			i, err := strconv.Atoi(ch.ID[1:])
			require.NoError(t, err)
			require.Equal(t, written[i], ch.Token)
		}
	},
}
