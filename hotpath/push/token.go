package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/penstock-broker/penstock/internal/egress"
	"github.com/penstock-broker/penstock/internal/policy"
)

const (
	// tokenTimeout bounds one request to a token endpoint.
	tokenTimeout = 10 * time.Second
	// tokenPause is the wait after a token endpoint failed: the attempts until then fail alike.
	tokenPause = time.Second
	// maxToken bounds the bytes of a kept token.
	maxToken = 16 << 10
)

// A tokenSource has the access token of one OAuth 2 client. The attempts of a lane share it.
type tokenSource struct {
	client policy.Authorization
	config clientcredentials.Config
	web    *http.Client

	mu       sync.Mutex
	token    *oauth2.Token
	err      error // of the last request that failed
	failed   time.Time
	fetching *tokenRequest // the request under way; nil: there is none
}

// A tokenRequest is one request to a token endpoint. done is closed when the rest is set.
type tokenRequest struct {
	done  chan struct{}
	token *oauth2.Token
	err   error
}

// tokens returns the token source of the consumer. It makes a new one after the credentials
// have changed.
func (v *delivery) tokens(credentials policy.Authorization, client policy.OAuth2) *tokenSource {
	if s := v.lane.token.Load(); s != nil && s.client == credentials {
		return s
	}
	s := &tokenSource{client: credentials, web: v.d.settings.Web, config: clientcredentials.Config{
		ClientID: client.ClientID, ClientSecret: client.ClientSecret, TokenURL: client.TokenURL, Scopes: client.Scopes,
	}}
	v.lane.token.Store(s)
	return s
}

// postWithToken sends the request with an access token. A consumer that answers 401 gets the
// request once more with a new token, within the same attempt.
func (v *delivery) postWithToken(target Target, req *fasthttp.Request, client policy.OAuth2, deadline time.Time) egress.Result {
	s := v.tokens(v.d.policy(v.consumer).Authorization, client)
	begun := time.Now()
	var used *oauth2.Token
	var res egress.Result
	for again := false; ; again = true {
		token, err := s.get(used, deadline)
		if err != nil {
			return egress.Result{Err: err, RetryAfter: -1, Took: time.Since(begun)}
		}
		req.Header.Set("Authorization", token.Type()+" "+token.AccessToken)
		switch err := v.inTime(deadline, again); {
		case err != nil && again: // the 401 counts; the next attempt has the new token
			res.Took = time.Since(begun)
			return res
		case err != nil:
			return egress.Result{Err: err, RetryAfter: -1, Local: true}
		}
		res = v.send(target, req, v.d.policy(v.consumer), deadline)
		if again || res.Status != http.StatusUnauthorized || res.Err != nil {
			res.Took = time.Since(begun)
			return res
		}
		used = token
	}
}

// get returns a token other than refused: the one that is kept while it is valid, or the result of
// one request. The attempts that wait for that request use its token too, however short its life
// is: a token that expires at once costs one request for each attempt, and no attempt asks twice.
func (s *tokenSource) get(refused *oauth2.Token, deadline time.Time) (*oauth2.Token, error) {
	s.mu.Lock()
	switch {
	case s.token.Valid() && s.token != refused:
		defer s.mu.Unlock()
		return s.token, nil
	case time.Since(s.failed) < tokenPause:
		defer s.mu.Unlock()
		return nil, s.err
	}
	request := s.fetching
	if request == nil {
		request = &tokenRequest{done: make(chan struct{}), err: errNoToken}
		s.fetching = request
		s.mu.Unlock()
		s.fetch(request, deadline)
		return request.token, request.err
	}
	s.mu.Unlock()
	wait := time.NewTimer(time.Until(deadline))
	defer wait.Stop()
	select {
	case <-request.done:
		return request.token, request.err
	case <-wait.C:
		return nil, errTokenTime
	}
}

var (
	errTokenTime = errors.New("the token endpoint did not answer in time; nothing was sent to the consumer")
	errNoToken   = errors.New("the token endpoint gave no usable token; nothing was sent to the consumer")
)

// fetch asks the endpoint and ends the request, which the caller has put into s.fetching.
func (s *tokenSource) fetch(request *tokenRequest, deadline time.Time) {
	defer func() {
		s.mu.Lock()
		if request.err == nil {
			s.token = request.token
		} else {
			s.err, s.failed = request.err, time.Now()
		}
		s.fetching = nil
		close(request.done)
		s.mu.Unlock()
	}()
	until := time.Now().Add(tokenTimeout)
	if deadline.Before(until) {
		until = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), oauth2.HTTPClient, s.web), until)
	defer cancel()
	token, err := s.config.Token(ctx)
	switch {
	case err != nil:
		request.err = describeToken(err)
	case len(token.AccessToken) > maxToken || !printable(token.AccessToken) || !printable(token.TokenType):
		request.err = errNoToken
	default:
		request.token, request.err = token, nil
	}
}

// describeToken describes a failed request for a token without what the endpoint answered and
// without its URL, which may contain secrets.
func describeToken(err error) error {
	var refused *oauth2.RetrieveError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errTokenTime
	case errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode/100 != 2:
		return fmt.Errorf("the token endpoint answered %d; nothing was sent to the consumer", refused.Response.StatusCode)
	}
	return errNoToken
}

// printable reports whether text can be sent in a header.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
