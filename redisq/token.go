package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The access token of an OAuth 2 client is shared by all brokers, and one of them at a time fetches
// it: many token endpoints end the former token of a client when they give a new one. Redis sees a
// token sealed, under a name that tells nothing of the client. If Redis loses it, one of the brokers
// that needs one fetches another.

// A Token is what Redis knows of the token of a client. Either Sealed is set, or Fetch, or Wait.
type Token struct {
	Version string // of the token: the name of the fetch
	Sealed  []byte
	Age     time.Duration // since the fetch
	Rest    time.Duration // for which it may be used
	Fetch   bool          // the caller fetches, and calls KeepToken then
	Wait    time.Duration // for which another one has the right to fetch, at most
}

// tokenKey is the key of a client's token.
func tokenKey(prefix, name string) string { return prefix + "{t" + name + "}" }

// TakeToken returns the kept token of a client, or the right to fetch one for a time. name is that
// of the client, refused the version of a token that is not good, and by that of this fetch.
func (q *Queue) TakeToken(ctx context.Context, name, refused, by string, length time.Duration) (Token, error) {
	v, err := q.runToken(ctx, takeTokenScript, name, refused, by, length.Milliseconds())
	if err != nil {
		return Token{}, err
	}
	reply, _ := v.([]any)
	text := make([]string, len(reply))
	for i := range reply {
		text[i], _ = reply[i].(string)
	}
	switch {
	case len(text) == 1 && text[0] == "fetch":
		return Token{Fetch: true}, nil
	case len(text) == 2 && text[0] == "wait":
		return Token{Wait: msOf(text[1])}, nil
	case len(text) == 5 && text[0] == "token":
		return Token{Version: text[1], Sealed: []byte(text[2]), Age: msOf(text[3]), Rest: msOf(text[4])}, nil
	}
	return Token{}, failedTo("take a token", fmt.Errorf("unexpected reply %T", v))
}

// KeepToken ends the right to fetch. The token is kept for a time; 0: there is none. It returns
// false where the right had ended before, and another fetch counts.
func (q *Queue) KeepToken(ctx context.Context, name, by string, sealed []byte, kept time.Duration) (bool, error) {
	v, err := q.runToken(ctx, keepTokenScript, name, by, sealed, kept.Milliseconds())
	n, _ := v.(int64)
	return n == 1, err
}

// runToken runs a script with the key of a client.
func (q *Queue) runToken(ctx context.Context, s *script, name string, args ...any) (any, error) {
	return q.runKeys(ctx, s, []string{tokenKey(q.prefix, name)}, args...)
}

// runKeys runs a script with keys that are no queue's.
func (q *Queue) runKeys(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	for _, call := range [][]any{{"evalsha", s.hash}, {"eval", s.text}} {
		call = append(call, len(keys))
		for _, key := range keys {
			call = append(call, key)
		}
		cmd := redis.NewCmd(ctx, append(call, args...)...)
		cmd.SetFirstKeyPos(3)
		_ = q.client.Process(ctx, onceCmd{cmd})
		v, err := cmd.Result()
		if err == nil {
			return v, nil
		}
		if call[0] == "eval" || !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return nil, failedTo(s.name, err)
		}
	}
	return nil, nil
}

func msOf(text string) time.Duration {
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(ms) * time.Millisecond
}
