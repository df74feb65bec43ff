package push

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/redisq"
)

// brokerOf returns a broker that shares tokens.
func brokerOf(shared Tokens) *Dispatcher {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Dispatcher{settings: Settings{Web: client, Policies: policy.NewBook(policy.Policy{}), Tokens: shared,
		Secret: []byte("store")}, log: slog.New(slog.DiscardHandler)}
}

// sourceIn returns the source of a client in a lane of its own.
func sourceIn(t *testing.T, d *Dispatcher, client string) *tokenSource {
	t.Helper()
	var p policy.Policy
	require.NoError(t, policy.Set(&p, "authorization", "oauth2 "+client))
	oauth, ok := p.Authorization.OAuth2()
	require.True(t, ok)
	v := &delivery{d: d, lane: &lane{}}
	source := v.tokens(p.Authorization, oauth)
	require.Same(t, source, v.tokens(p.Authorization, oauth))
	return source
}

func sourceOf(t *testing.T, handle http.HandlerFunc) *tokenSource {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return sourceIn(t, brokerOf(nil), s.URL+"/?s3cret client s3cret")
}

func answerToken(w http.ResponseWriter, token string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer"}`, token)
}

func TestConcurrentAttemptsShareOneRequestForAToken(t *testing.T) {
	var asked atomic.Int64
	begin := make(chan struct{})
	s := sourceOf(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-begin
		answerToken(w, "t")
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			token, err := s.get(nil, time.Now().Add(time.Minute))
			require.NoError(t, err)
			require.Equal(t, "Bearer t", token.header)
		})
	}
	close(begin)
	wg.Wait()
	require.EqualValues(t, 1, asked.Load())
}

// The library counts a token as expired ten seconds before its end.
func TestATokenThatExpiresAtOnceIsUsedAfterOneRequest(t *testing.T) {
	var asked atomic.Int64
	s := sourceOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"t%d","token_type":"Bearer","expires_in":5}`, asked.Add(1))
	})
	for attempt := range 3 {
		token, err := s.get(nil, time.Now().Add(time.Minute))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("Bearer t", attempt+1), token.header)
		require.EqualValues(t, attempt+1, asked.Load())
	}
}

// A bad endpoint makes the attempt fail with a reason that shows none of its answer.
func TestABadTokenEndpointFailsTheAttempt(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"refuses": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cret", http.StatusForbidden) },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere?s3cret", http.StatusFound)
		},
		"has no token":  func(w http.ResponseWriter, _ *http.Request) { answerToken(w, "") },
		"breaks a line": func(w http.ResponseWriter, _ *http.Request) { answerToken(w, "s3cret\r\nX-A: b") },
		"is no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("s3cret")) },
		"is too long": func(w http.ResponseWriter, _ *http.Request) {
			answerToken(w, strings.Repeat("s3cret", 10<<20/6))
		},
	} {
		s := sourceOf(t, handle)
		_, err := s.get(nil, time.Now().Add(time.Minute))
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "s3cret", name)
		require.Contains(t, err.Error(), "nothing was sent", name)
	}
}

func TestATokenEndpointThatHangsEndsWithTheAttempt(t *testing.T) {
	release := make(chan struct{})
	s := sourceOf(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	_, err := s.get(nil, time.Now().Add(50*time.Millisecond))
	require.ErrorIs(t, err, errTokenTime)
}

// A site is brokers with one Redis, and a token endpoint that counts.
type site struct {
	redis    *miniredis.Miniredis
	queue    *redisq.Queue
	endpoint string
	asked    atomic.Int64
	slow     chan struct{} // not nil: an answer waits until it is closed
}

func newSite(t *testing.T) *site {
	s := &site{redis: miniredis.RunT(t)}
	client := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s.queue = redisq.New(client, redisq.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := s.asked.Add(1)
		if s.slow != nil {
			<-s.slow
		}
		answerToken(w, fmt.Sprint("t", n))
	}))
	t.Cleanup(server.Close)
	s.endpoint = server.URL + "/token"
	return s
}

// requireToken gets a token and requires which one.
func requireToken(t *testing.T, s *tokenSource, refused *accessToken, want string) *accessToken {
	t.Helper()
	token, err := s.get(refused, time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, "Bearer "+want, token.header)
	return token
}

func TestBrokersAndConsumersShareTheTokenOfAClient(t *testing.T) {
	x := newSite(t)
	x.slow = make(chan struct{})
	a, b := brokerOf(x.queue), brokerOf(x.queue)
	one := x.endpoint + " client s3cret b a"
	sources := []*tokenSource{sourceIn(t, a, one), sourceIn(t, a, x.endpoint+" client s3cret a b"), sourceIn(t, b, one)}
	require.Same(t, sources[0], sources[1], "the order of the scopes makes no other client")
	var wg sync.WaitGroup
	for range 10 {
		for _, s := range sources {
			wg.Go(func() { requireToken(t, s, nil, "t1") })
		}
	}
	require.Eventually(t, func() bool { return x.asked.Load() == 1 }, time.Minute, time.Millisecond)
	close(x.slow)
	wg.Wait()
	require.EqualValues(t, 1, x.asked.Load())

	old := requireToken(t, sources[0], nil, "t1")
	fresh := requireToken(t, sources[0], old, "t2")
	require.Equal(t, fresh.version, requireToken(t, sources[2], old, "t2").version, "the other broker renews nothing")
	require.EqualValues(t, 2, x.asked.Load())

	for i, other := range []string{x.endpoint + "/x client s3cret a b", x.endpoint + " other s3cret a b", x.endpoint +
		" client other a b", x.endpoint + " client s3cret a"} {
		requireToken(t, sourceIn(t, b, other), nil, fmt.Sprint("t", i+3))
	}
}

func TestAfterALossOneBrokerFetchesAnotherToken(t *testing.T) {
	x := newSite(t)
	client := x.endpoint + " client s3cret"
	a := sourceIn(t, brokerOf(x.queue), client)
	requireToken(t, a, nil, "t1")
	x.redis.FlushAll()
	requireToken(t, a, nil, "t1")
	var wg sync.WaitGroup
	for range 5 {
		s := sourceIn(t, brokerOf(x.queue), client)
		wg.Go(func() { requireToken(t, s, nil, "t2") })
	}
	wg.Wait()
	require.EqualValues(t, 2, x.asked.Load())
}

func TestABrokerThatDiesWhileItFetchesHoldsTheOthersUpForAWhileOnly(t *testing.T) {
	x := newSite(t)
	s := sourceIn(t, brokerOf(x.queue), x.endpoint+" client s3cret")
	dead, err := x.queue.TakeToken(t.Context(), s.seal.name, "", "dead", tokenRight)
	require.NoError(t, err)
	require.True(t, dead.Fetch)
	_, err = s.get(nil, time.Now().Add(3*time.Second))
	require.ErrorIs(t, err, errOtherFetches)
	x.redis.SetTime(time.Now().Add(tokenRight))
	requireToken(t, s, nil, "t1")
	ours, err := x.queue.KeepToken(t.Context(), s.seal.name, "dead", s.seal.close("Bearer late"), time.Hour)
	require.NoError(t, err)
	require.False(t, ours)
}

// Two consumers may name one endpoint in two ways.
func TestAnEndpointInAnotherSpellingIsTheSameClient(t *testing.T) {
	x := newSite(t)
	site := strings.TrimSuffix(x.endpoint, "/token")
	port := site[strings.LastIndexByte(site, ':'):]
	a, b := brokerOf(x.queue), brokerOf(x.queue)
	requireToken(t, sourceIn(t, a, site+" client s3cret"), nil, "t1")
	for _, spelling := range []string{site + "/", "HTTP://127.1" + port, "http://[::ffff:127.0.0.1]" + port} {
		requireToken(t, sourceIn(t, a, spelling+" client s3cret"), nil, "t1")
		requireToken(t, sourceIn(t, b, spelling+" client s3cret"), nil, "t1")
	}
	require.Len(t, a.tokens.all, 1)
	requireToken(t, sourceIn(t, a, site+"/other client s3cret"), nil, "t2")
}

func TestWithoutAQueueEachBrokerFetchesATokenOfItsOwn(t *testing.T) {
	x := newSite(t)
	x.redis.Close()
	a, b := sourceIn(t, brokerOf(x.queue), x.endpoint+" client s3cret"), sourceIn(t, brokerOf(x.queue), x.endpoint+
		" client s3cret")
	requireToken(t, a, nil, "t1")
	requireToken(t, b, nil, "t2")
}

func TestWhatIsSharedTellsNeitherTheTokenNorTheClient(t *testing.T) {
	x := newSite(t)
	client := policy.OAuth2{TokenURL: x.endpoint, ClientID: "client", ClientSecret: "s3cret", Scopes: []string{"scope"}}
	s := sourceIn(t, brokerOf(x.queue), x.endpoint+" client s3cret scope")
	requireToken(t, s, nil, "t1")
	dump := x.redis.Dump()
	for _, text := range []string{"Bearer", "client", "s3cret", "scope", "127.0.0.1"} {
		require.NotContains(t, dump, text)
	}
	kept, err := x.queue.TakeToken(context.Background(), s.seal.name, "", "x", tokenRight)
	require.NoError(t, err)
	for _, other := range []tokenSeal{newTokenSeal([]byte("another store"), client), newTokenSeal(nil, client)} {
		require.NotEqual(t, s.seal.name, other.name)
		other.name = s.seal.name
		_, ok := other.open(kept.Sealed)
		require.False(t, ok)
	}
	// What is not one of ours is fetched again.
	ok, err := x.queue.KeepToken(context.Background(), s.seal.name, kept.Version, []byte("no token at all"), time.Hour)
	require.NoError(t, err)
	require.False(t, ok, "nobody fetches")
	x.redis.FlushAll()
	_, err = x.queue.KeepToken(context.Background(), s.seal.name, "x", []byte("no token at all"), time.Hour)
	require.NoError(t, err)
	requireToken(t, sourceIn(t, brokerOf(x.queue), x.endpoint+" client s3cret scope"), nil, "t2")
}

func TestARefusalOfARenewedTokenHoldsAFewTimes(t *testing.T) {
	var r refusals
	sent := time.Now()
	var held time.Duration
	for i := range holdsOfRefusal {
		wait, first, ok := r.hold(sent)
		require.True(t, ok)
		require.Equal(t, i == 0, first)
		held += wait
		_, _, ok = r.hold(sent.Add(-time.Second)) // of the same time
		require.True(t, ok)
		r.until, sent = time.Time{}, time.Now()
	}
	require.Equal(t, 15*time.Second, held)
	_, first, ok := r.hold(sent)
	require.False(t, ok)
	require.True(t, first)
	_, first, ok = r.hold(sent)
	require.False(t, ok || first)
	token := &accessToken{since: time.Now()}
	require.False(t, r.renews(token))
	r.works(token)
	require.True(t, r.renews(token))
	_, _, ok = r.hold(time.Now())
	require.True(t, ok)
	require.True(t, r.renews(&accessToken{since: time.Now().Add(-freshFor - time.Second)}))
}

// The owner of a consumer reads why there is no token, and no secret of the URL.
func TestATokenEndpointThatCannotBeAskedIsSaidSo(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	address := s.Listener.Addr().String()
	client := egress.NewClient(egress.Options{})
	t.Cleanup(client.Close)
	broker := brokerOf(nil)
	broker.settings.Web = client.Web(egress.Configured)
	source := sourceIn(t, broker, "http://"+address+"/hidden?s3cret client s3cret")
	_, err := source.get(nil, time.Now().Add(time.Minute))
	require.EqualError(t, err, "the token endpoint cannot be asked: connection refused by "+address+
		"; nothing was sent to the consumer")
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	source = sourceIn(t, broker, secure.URL+"/?s3cret client s3cret")
	_, err = source.get(nil, time.Now().Add(time.Minute))
	require.EqualError(t, err, "the token endpoint cannot be asked: the certificate of the endpoint is signed by an "+
		"unknown authority; nothing was sent to the consumer")
}

func TestARedirectIsSaidToBeTheFailure(t *testing.T) {
	require.Equal(t, "status 302 (redirects are not followed)", describeFailure(egress.Result{Status: 302}))
	require.Equal(t, "status 404", describeFailure(egress.Result{Status: 404}))
}
