package catalogue

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
)

// clocked returns a copy as of admitted with a clock of its own, and API tokens by their scopes.
func clocked(t *testing.T, scopes ...string) (s *source, c *Catalogue, now *atomic.Int64, tokens map[string]string) {
	s, c, _, _ = admitted(t)
	now, tokens = new(atomic.Int64), map[string]string{}
	now.Store(1_000_000)
	c.UseSecrets(Secrets{NowMs: now.Load})
	s.change(func(ch *durable.Changes, v int64) {
		ch.NewTokens = true
		for _, text := range scopes {
			token, id := apitoken.New()
			d := apitoken.Keys{}.Digest([]byte(token))
			ch.Tokens = append(ch.Tokens, durable.APIToken{ID: id, Scopes: text, Digest: string(d.Sum[:]), Version: v,
				ExpiresMs: 2_000_000})
			tokens[text] = token
		}
	})
	return s, c, now, tokens
}

func TestAPITokensStandForTheTokensOfTheirScopes(t *testing.T) {
	_, c, _, tokens := clocked(t, "channel:c", "channel:d", "consumer:c/k", "consumer:c/other", "dlq", "management:write")
	for word, token := range tokens {
		mine := []byte(token)
		_, publishes := c.AdmitProducer(t.Context(), "c", mine, []byte("p"), []byte("pt"))
		_, alone := c.AdmitProducer(t.Context(), "c", mine, []byte("p"), mine)
		_, claims := c.AdmitConsumer(t.Context(), "c", mine, "k", mine)
		_, beside := c.AdmitConsumer(t.Context(), "c", mine, "k", []byte("kt"))
		require.Error(t, alone, "%s: a message says who published it", word)
		require.Equal(t, word == "channel:c", publishes == nil, word)
		require.Equal(t, word == "channel:c" || word == "consumer:c/k", claims == nil, word)
		require.Equal(t, claims == nil, beside == nil, word)
	}
}

func TestAStandingByAnAPITokenEndsWithIt(t *testing.T) {
	s, c, now, tokens := clocked(t, "channel:c", "consumer:c/k")
	publishes, err := c.AdmitProducer(t.Context(), "c", []byte(tokens["channel:c"]), []byte("p"), []byte("pt"))
	require.NoError(t, err)
	claims, err := c.AdmitConsumer(t.Context(), "c", []byte("ct"), "k", []byte(tokens["consumer:c/k"]))
	require.NoError(t, err)
	require.NoError(t, publishes.Check())
	changed, stop := claims.Await()
	defer stop()
	s.change(func(ch *durable.Changes, _ int64) { ch.Tokens = ch.Tokens[1:] })
	require.NoError(t, c.Refresh(t.Context()))
	<-changed // whoever waits is told
	require.ErrorIs(t, publishes.Check(), ErrChannelToken)
	require.NoError(t, claims.Check())
	now.Store(1_999_999)
	require.NoError(t, claims.Check())
	now.Store(2_000_000)
	require.ErrorIs(t, claims.Check(), ErrConsumerToken, "its time is over, and nothing has changed")
}

func TestATokenBeforeARotationIsRightUntilItsEnd(t *testing.T) {
	s, c, now, _ := clocked(t)
	st, err := c.AdmitProducer(t.Context(), "c", []byte("ct"), []byte("p"), []byte("pt"))
	require.NoError(t, err)
	s.edit(func(ch *durable.Changes) {
		ch.Producers[0].Token, ch.Producers[0].Former = "new", durable.Former{FormerToken: "pt", FormerUntilMs: 2_000_000}
		ch.Channels[0].Token, ch.Channels[0].Former = "new", durable.Former{FormerToken: "ct", FormerUntilMs: 3_000_000}
	})
	require.NoError(t, c.Refresh(t.Context()))
	require.NoError(t, st.Check(), "a request that is under way goes on")
	for _, channel := range []string{"ct", "new"} {
		for _, producer := range []string{"pt", "new"} {
			_, err = c.AdmitProducer(t.Context(), "c", []byte(channel), []byte("p"), []byte(producer))
			require.NoError(t, err)
		}
	}
	later, err := c.AdmitProducer(t.Context(), "c", []byte("new"), []byte("p"), []byte("pt"))
	require.NoError(t, err)
	now.Store(2_000_000)
	require.ErrorIs(t, later.Check(), ErrProducerToken)
	_, err = c.AdmitProducer(t.Context(), "c", []byte("ct"), []byte("p"), []byte("pt"))
	require.ErrorIs(t, err, ErrProducerToken)
	_, err = c.AdmitProducer(t.Context(), "c", []byte("ct"), []byte("p"), []byte("new"))
	require.NoError(t, err)
}

func TestATokenOfAnotherKeyIsRefused(t *testing.T) {
	s, c, _, tokens := clocked(t, "dlq")
	key := make([]byte, apitoken.KeySize)
	key[0] = 1
	s.change(func(ch *durable.Changes, _ int64) { ch.Tokens[0].KeyID = apitoken.KeyID(key) })
	require.NoError(t, c.Refresh(t.Context()))
	_, err := c.Grant(t.Context(), []byte(tokens["dlq"]))
	require.ErrorIs(t, err, ErrAPIToken)
}

// What a publish compares costs no memory, with API tokens in the copy and with a rotation under way.
func TestComparingTheTokensOfAPublishAllocatesNothing(t *testing.T) {
	s, c, _, tokens := clocked(t, "channel:c", "dlq")
	s.edit(func(ch *durable.Changes) {
		ch.Channels[0].Former = durable.Former{FormerToken: "old", FormerUntilMs: time.Now().Add(time.Hour).UnixMilli()}
	})
	require.NoError(t, c.Refresh(t.Context()))
	for name, channelToken := range map[string]string{"its token": "ct", "the one before": "old",
		"an API token": tokens["channel:c"]} {
		channel, id, producer := []byte(channelToken), []byte("p"), []byte("pt")
		ctx := t.Context()
		require.Zero(t, testing.AllocsPerRun(200, func() {
			st, err := c.AdmitProducer(ctx, "c", channel, id, producer)
			if err != nil || st.Check() != nil {
				t.Fatal("it is right")
			}
		}), name)
	}
}

func BenchmarkAdmitProducer(b *testing.B) {
	s := &source{}
	s.producer("p", "pt")
	s.channel(7, "c", "ct")
	c := New(s, nil)
	if err := c.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	channel, id, producer := []byte("ct"), []byte("p"), []byte("pt")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.AdmitProducer(b.Context(), "c", channel, id, producer); err != nil {
			b.Fatal(err)
		}
	}
}
