package jobs

import (
	"context"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/filter"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// A MatcherStore is the part of durable.Store that a Matcher reads.
type MatcherStore interface {
	MessagesUpTo(ctx context.Context, channelNo uint32, ids []ident.ID, budget int) (msgs []durable.Message,
		read int, err error)
}

// matchedAtOnce bounds the payloads and headers that a matcher has in memory at once, bytes, unless
// one message is larger.
const matchedAtOnce = 4 << 20

// A Matcher evaluates a filter for messages that are stored. Bytes and Until bound what it does, but
// it always examines one message, so that its caller gets on.
type Matcher struct {
	Store  MatcherStore
	Filter *filter.Filter
	Seen   func(*durable.Message) filter.Message
	Bytes  int       // of payloads and headers that may be read; Match subtracts what it reads
	Until  time.Time // when Match stops
}

// Spent reports whether one of the bounds is reached.
func (s *Matcher) Spent() bool { return s.Bytes <= 0 || !time.Now().Before(s.Until) }

// Match examines the messages in the order of ids, until a bound is reached: it has examined
// ids[:read]. match has those of them for which the filter is true. A message for which it fails,
// and one that is gone, is no match.
func (s *Matcher) Match(ctx context.Context, channelNo uint32, ids []ident.ID) (match map[ident.ID]bool, read int,
	err error) {
	match = map[ident.ID]bool{}
	for read < len(ids) && (read == 0 || !s.Spent()) {
		msgs, n, err := s.Store.MessagesUpTo(ctx, channelNo, ids[read:], min(max(s.Bytes, 0), matchedAtOnce))
		if err != nil {
			return nil, 0, err
		}
		next := read + n
		for i := range msgs {
			m := &msgs[i]
			if i > 0 && !time.Now().Before(s.Until) {
				for ids[read] != m.ID {
					read++
				}
				return match, read, nil
			}
			s.Bytes -= len(m.Payload) + len(m.Headers)
			seen := s.Seen(m)
			if s.Filter.Decide(&seen) == filter.Match {
				match[m.ID] = true
			}
		}
		read = next
	}
	return match, read, nil
}
