package pull

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/redisq"
)

// A countingQueue has these sizes.
type countingQueue struct {
	Queue
	stats redisq.Stats
	err   error
}

func (q countingQueue) Stats(context.Context, uint32) (redisq.Stats, error) { return q.stats, q.err }

// A countingStore has that many open jobs.
type countingStore struct {
	pullStore
	open int
	more bool
	err  error
}

func (s countingStore) Backlog(_ context.Context, _ durable.Consumer, limit int) (durable.Backlog, error) {
	return durable.Backlog{Open: min(s.open, limit), More: s.more}, s.err
}

func TestTheBacklogOfAClaimIsRightOrAbsent(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		claim redisq.Claim
		queue countingQueue
		store countingStore
		want  remainder
	}{
		"Redis has every job": {claim: redisq.Claim{Ready: 7, Whole: true}, want: remainder{due: 7}},
		"jobs are outside the window": {claim: redisq.Claim{Ready: 7, Spilled: true}, want: remainder{unknown,
			whyLoading}},
		"no scan has ended, the store has none": {want: remainder{due: 0}},
		"no scan has ended, the store counts": {claim: redisq.Claim{Ready: 1},
			queue: countingQueue{stats: redisq.Stats{Leased: 2, Delayed: 3}}, store: countingStore{open: 10}, want: remainder{5,
				whyLoading}},
		"Redis knows a new one before the store": {claim: redisq.Claim{Ready: 4}, store: countingStore{open: 3},
			want: remainder{4, whyLoading}},
		"too many to count": {store: countingStore{open: countedAtOnce}, want: remainder{unknown,
			whyLoading}},
		"most of what was read is delivered": {store: countingStore{open: 3, more: true}, want: remainder{unknown,
			whyLoading}},
		"all that was read is delivered": {store: countingStore{more: true}, want: remainder{unknown, whyLoading}},
		"the store is away":              {store: countingStore{err: away}, want: remainder{unknown, whyLoading}},
		"Redis is away":                  {queue: countingQueue{err: away}, want: remainder{unknown, whyLoading}},
		"the limits of a consumer come first": {claim: redisq.Claim{Ready: 7, Limited: redisq.RateLimit},
			store: countingStore{open: 9}, want: remainder{9, whyLimited}},
		"a limit of a state that has every job": {claim: redisq.Claim{Ready: 7, Whole: true,
			Limited: redisq.ConcurrencyLimit}, want: remainder{7, whyLimited}},
		"an empty answer of a state that has none": {claim: redisq.Claim{Whole: true}, want: remainder{}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := pullerOf(t, false)
			p.queue, p.store = c.queue, c.store
			require.Equal(t, c.want, p.left(t.Context(), portionConsumer, c.claim))
		})
	}
}
