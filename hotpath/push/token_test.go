package push

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/policy"
)

func sourceOf(t *testing.T, handle http.HandlerFunc) *tokenSource {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	d := &Dispatcher{settings: Settings{Web: client}}
	v := &delivery{d: d, lane: &lane{}}
	var p policy.Policy
	require.NoError(t, policy.Set(&p, "authorization", "oauth2 "+s.URL+"/?s3cret client s3cret"))
	oauth, ok := p.Authorization.OAuth2()
	require.True(t, ok)
	source := v.tokens(p.Authorization, oauth)
	require.Same(t, source, v.tokens(p.Authorization, oauth))
	return source
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
			require.Equal(t, "t", token.AccessToken)
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
		token, err := s.get(nil, time.Now().Add(2*time.Second))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("t", attempt+1), token.AccessToken)
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
