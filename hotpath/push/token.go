package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

const (
	// tokenTimeout bounds one request to a token endpoint.
	tokenTimeout = 10 * time.Second
	// tokenRight is how long a broker has the right to fetch a token. After it another one fetches:
	// the broker is gone.
	tokenRight = tokenTimeout + 2*time.Second
	// keepWithin bounds the call that gives a token to the other brokers.
	keepWithin = 2 * time.Second
	// tokenPause is the wait after a token endpoint failed: the attempts until then fail alike.
	tokenPause = time.Second
	// tokenEarly is how long before its end a token counts as over.
	tokenEarly = 10 * time.Second
	// longestKept is how long Redis keeps a token without an end, or with a late one.
	longestKept = 24 * time.Hour
	// maxToken bounds the bytes of a kept token.
	maxToken = 16 << 10
)

// Tokens shares the access tokens of clients with the other brokers: a redisq.Queue.
type Tokens interface {
	TakeToken(ctx context.Context, name, refused, by string, length time.Duration) (redisq.Token, error)
	KeepToken(ctx context.Context, name, by string, sealed []byte, kept time.Duration) (bool, error)
}

// A tokenSource has the access token of one OAuth 2 client. All consumers of the client share it,
// on all brokers: an endpoint may end the former token of a client when it gives a new one, so only
// one request at a time asks it.
type tokenSource struct {
	seal    tokenSeal
	shared  Tokens // nil: there is no other broker
	fetch   func(ctx context.Context) (*oauth2.Token, error)
	alone   func(err error) // told that the token cannot be shared
	running *sync.WaitGroup

	mu     sync.Mutex
	used   time.Time
	token  *accessToken
	err    error // of the last request that failed
	failed time.Time
	asking *tokenRequest // the request under way; nil: there is none
}

// An accessToken is what a consumer gets. It does not change.
type accessToken struct {
	header  string    // the value of Authorization
	version string    // that of the fetch
	since   time.Time // when it was fetched
	until   time.Time // from when on it is not used; zero: it has no end
}

// good reports whether the token may be used by those that were refused another one.
func (t *accessToken) good(refused *accessToken) bool {
	return t != nil && (refused == nil || t.version != refused.version) && (t.until.IsZero() || time.Now().Before(t.until))
}

// A tokenRequest is one request for a token. done is closed when token and err are set.
type tokenRequest struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiting int // attempts, under the lock of the source; the last one that leaves ends the request
	done    chan struct{}
	other   chan struct{} // closed when it waits for another broker
	token   *accessToken
	err     error
}

// get returns a token other than refused: the one that is kept while it is good, or the result of
// one request. The attempts that wait for that request use its token too, however short its life
// is: a token that expires at once costs one request for each attempt, and no attempt asks twice.
// The request ends with the last attempt that waits for it.
func (s *tokenSource) get(refused *accessToken, deadline time.Time) (*accessToken, error) {
	s.mu.Lock()
	s.used = time.Now()
	switch {
	case s.token.good(refused):
		defer s.mu.Unlock()
		return s.token, nil
	case time.Since(s.failed) < tokenPause:
		defer s.mu.Unlock()
		return nil, s.err
	}
	request := s.asking
	if request == nil {
		request = &tokenRequest{done: make(chan struct{}), other: make(chan struct{}), err: errNoToken}
		request.ctx, request.cancel = context.WithTimeout(context.Background(), tokenTimeout+tokenRight)
		s.asking = request
		s.running.Go(func() { s.request(request, refused) })
	}
	request.waiting++
	s.mu.Unlock()
	defer s.leave(request)
	wait := time.NewTimer(time.Until(deadline))
	defer wait.Stop()
	select {
	case <-request.done:
		return request.token, request.err
	case <-wait.C:
	}
	select {
	case <-request.other:
		return nil, errOtherFetches
	default:
		return nil, errTokenTime
	}
}

// leave ends a request for which nobody waits.
func (s *tokenSource) leave(request *tokenRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.waiting--; request.waiting == 0 {
		request.cancel()
		if s.asking == request { // the next attempt begins another one
			s.asking = nil
		}
	}
}

var (
	errTokenTime    = errors.New("the token endpoint did not answer in time; nothing was sent to the consumer")
	errNoToken      = errors.New("the token endpoint gave no usable token; nothing was sent to the consumer")
	errTokenAddress = errors.New("the address of the token endpoint is not allowed; nothing was sent to the consumer")
	// errOtherFetches is no failure of the consumer or of its endpoint: the job is given back.
	errOtherFetches = errors.New("another broker asks the token endpoint; nothing was sent to the consumer")
)

// request makes a request, which the caller has put into s.asking.
func (s *tokenSource) request(request *tokenRequest, refused *accessToken) {
	defer func() {
		s.mu.Lock()
		if request.err == nil {
			s.token = request.token
		} else if s.asking == request && !errors.Is(request.err, errOtherFetches) {
			s.err, s.failed = request.err, time.Now()
		}
		if s.asking == request {
			s.asking = nil
		}
		close(request.done)
		s.mu.Unlock()
	}()
	_ = guard.Do("request for an access token", func() error { // after a panic: errNoToken
		request.token, request.err = s.obtain(request, refused)
		return nil
	})
}

// obtain takes the token that another broker has fetched, or fetches one. Without Redis it fetches
// one alone: the brokers come together again when the consumer refuses one of their tokens.
func (s *tokenSource) obtain(request *tokenRequest, refused *accessToken) (*accessToken, error) {
	by := newVersion()
	ctx, version := request.ctx, ""
	if s.shared == nil {
		token, _, err := s.ask(ctx, by)
		return token, err
	}
	if refused != nil {
		version = refused.version
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		kept, err := s.shared.TakeToken(ctx, s.seal.name, version, by, tokenRight)
		switch {
		case err != nil:
			s.alone(err)
			token, _, err := s.ask(ctx, by)
			return token, err
		case kept.Fetch:
			token, err := s.fetchShared(ctx, by)
			if token != nil || err != nil {
				return token, err
			}
			by = newVersion() // another one fetched after the right had ended
			continue
		case kept.Sealed != nil:
			if header, ok := s.seal.open(kept.Sealed); ok {
				now := time.Now()
				return &accessToken{header: header, version: kept.Version, since: now.Add(-kept.Age), until: now.Add(kept.Rest)},
					nil
			}
			version = kept.Version // it is not one of ours
			continue
		}
		if pause == 20*time.Millisecond {
			close(request.other)
		}
		select {
		case <-ctx.Done():
			return nil, errOtherFetches
		case <-time.After(min(pause, max(kept.Wait, time.Millisecond))):
		}
	}
}

// fetchShared fetches a token and gives it to the other brokers. A crash before that leaves the
// right to fetch, which ends. It returns nothing where another fetch counts.
func (s *tokenSource) fetchShared(ctx context.Context, by string) (*accessToken, error) {
	token, kept, err := s.ask(ctx, by)
	var sealed []byte
	if err == nil && kept > 0 {
		sealed = s.seal.close(token.header)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	ours, e := s.shared.KeepToken(ctx, s.seal.name, by, sealed, max(kept, 0))
	if e != nil {
		s.alone(e)
	} else if !ours && err == nil && kept > 0 {
		return nil, nil
	}
	return token, err
}

// ask asks the endpoint. kept is how long the token may be used by others.
func (s *tokenSource) ask(ctx context.Context, by string) (token *accessToken, kept time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	got, err := s.fetch(ctx)
	switch {
	case err != nil:
		return nil, 0, describeToken(err)
	case len(got.AccessToken) > maxToken || !printable(got.AccessToken) || !printable(got.TokenType):
		return nil, 0, errNoToken
	}
	token = &accessToken{header: got.Type() + " " + got.AccessToken, version: by, since: time.Now()}
	kept = longestKept
	if !got.Expiry.IsZero() {
		token.until = got.Expiry.Add(-tokenEarly)
		kept = min(time.Until(token.until), longestKept)
	}
	return token, kept, nil
}

// fetcher returns the function that asks the endpoint of a client.
func fetcher(web *http.Client, client policy.OAuth2) func(ctx context.Context) (*oauth2.Token, error) {
	config := clientcredentials.Config{
		ClientID: client.ClientID, ClientSecret: client.ClientSecret, TokenURL: client.TokenURL, Scopes: client.Scopes,
	}
	who := share.Host(egress.Plain(client.TokenURL) + " " + client.ClientID) // an account of the endpoint
	return func(ctx context.Context) (*oauth2.Token, error) {
		return config.Token(context.WithValue(egress.For(ctx, who), oauth2.HTTPClient, web))
	}
}

// describeToken describes a failed request for a token without what the endpoint answered and
// without its path, which may contain secrets.
func describeToken(err error) error {
	var refused *oauth2.RetrieveError
	var unsent *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errTokenTime
	case errors.Is(err, egress.ErrForbidden): // without the address: the endpoint may be anywhere inside
		return errTokenAddress
	case errors.As(err, &unsent): // without its URL
		why := strings.ReplaceAll(egress.Say(unsent.Err), "the consumer", "the endpoint")
		return fmt.Errorf("the token endpoint cannot be asked: %s; nothing was sent to the consumer", why)
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
