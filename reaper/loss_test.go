package reaper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/redisq"
)

// A partlyAway queue has consumers whose master does not answer.
type partlyAway struct {
	*redisq.Queue
	away    map[uint32]bool
	looks   bool     // it answers a look at the counts, and goes away then
	renewed []uint32 // asked for
}

var errAway = errors.New("test: this master is away")

func (q *partlyAway) Stats(ctx context.Context, consumer uint32) (redisq.Stats, error) {
	if q.away[consumer] && !q.looks {
		return redisq.Stats{}, errAway
	}
	return q.Queue.Stats(ctx, consumer)
}

func (q *partlyAway) Recover(ctx context.Context, consumer uint32, epoch string, batch []redisq.Job) (redisq.Enqueued,
	error) {
	if q.away[consumer] {
		return redisq.Enqueued{}, errAway
	}
	return q.Queue.Recover(ctx, consumer, epoch, batch)
}

func (q *partlyAway) Renew(ctx context.Context, consumer uint32) error {
	q.renewed = append(q.renewed, consumer)
	if q.away[consumer] {
		return errAway
	}
	return q.Queue.Renew(ctx, consumer)
}

// newPartlyAwayRig has three consumers, the first of which is away.
func newPartlyAwayRig(t *testing.T) (*rig, *partlyAway, []uint32) {
	q := &partlyAway{away: map[uint32]bool{}}
	r := newRig(t, 100, func(o *Options) {
		q.Queue = o.Queue.(*redisq.Queue)
		o.Queue, o.Jobs.Queue = q, q
	})
	nos := []uint32{r.consumer.No}
	pull := durable.Pull
	for _, id := range []string{"k2", "k3"} {
		k, _, err := r.store.PutConsumer(t.Context(), durable.ConsumerPut{Put: durable.Put{ID: id, NewToken: "t"},
			ChannelID: "c", Type: &pull})
		require.NoError(t, err)
		nos = append(nos, k.No)
	}
	r.audience = 3
	require.NoError(t, r.catalogue.Refresh(t.Context()))
	q.away[nos[0]] = true
	return r, q, nos
}

func (r *rig) state(consumer uint32, id ident.ID) redisq.State {
	r.t.Helper()
	s, err := r.queue.Probe(r.t.Context(), consumer, []ident.ID{id})
	require.NoError(r.t, err)
	return s[0].State
}

// One master of a Cluster is away: in the same round the consumers of the others
// get the jobs that Redis lacks, in the scan by priority and in the common scan.
func TestAConsumerThatFailsDoesNotKeepTheOthersWaiting(t *testing.T) {
	r, q, nos := newPartlyAwayRig(t)
	for _, scan := range []string{"by priority", "common"} {
		id := r.publish(0)[0]
		if scan == "common" {
			q.away[nos[0]] = false
			r.round() // the first one catches up
			q.away[nos[0]], q.looks = true, true
			id = r.publish(0)[0]
		}
		clear(r.resting)
		_, err := r.reconcile(t.Context()) // meets the consumers for the first time
		require.ErrorIs(t, err, errAway, scan)
		clear(r.resting)
		_, err = r.reconcile(t.Context())
		require.ErrorIs(t, err, errAway, scan)
		require.Equal(t, redisq.Missing, r.state(nos[0], id), scan)
		for _, no := range nos[1:] {
			require.Equal(t, redisq.Ready, r.state(no, id), scan)
		}
	}
}

func TestRenewingGoesOnPastAConsumerThatFails(t *testing.T) {
	r, q, nos := newPartlyAwayRig(t)
	for _, no := range nos { // Renew wants to know the epoch
		_, err := r.queue.Stats(t.Context(), no)
		require.NoError(t, err)
	}
	clear(r.resting)
	r.RedisChanged()
	require.ErrorIs(t, r.renewAll(t.Context()), errAway)
	require.ElementsMatch(t, nos, q.renewed)
	require.Len(t, r.resting, 2, "the others have a new epoch")
	q.renewed, q.away = nil, map[uint32]bool{}
	require.NoError(t, r.renewAll(t.Context()))
	require.Equal(t, nos[:1], q.renewed, "only what is left")
	require.NoError(t, r.renewAll(t.Context()))
	require.Len(t, q.renewed, 1)
}

// A broker that is delivering a job has time to restore the job's lease.
func TestAfterALossNothingIsPutBackForAMoment(t *testing.T) {
	r := newRig(t, 100, nil)
	id := r.publish(0)[0]
	r.round()
	r.server.FlushAll()
	clear(r.resting)
	r.scanStates[r.consumer.No].restart(0) // a scan is due, and meets the loss
	_, err := r.reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, redisq.Missing, r.state(r.consumer.No, id))
	require.NotEmpty(t, r.resting)
	r.resting[r.consumer.No] = time.Now().Add(time.Hour)
	_, err = r.reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, redisq.Missing, r.state(r.consumer.No, id))
	r.resting[r.consumer.No] = time.Now()
	_, err = r.reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, redisq.Ready, r.state(r.consumer.No, id))
}

// A wiped is a queue whose Redis loses its data just before one of the scan's calls.
type wiped struct {
	*redisq.Queue
	calls, at int
	flush     func()
}

func (q *wiped) Recover(ctx context.Context, consumer uint32, epoch string, batch []redisq.Job) (redisq.Enqueued,
	error) {
	if q.calls++; q.calls == q.at {
		q.flush()
	}
	return q.Queue.Recover(ctx, consumer, epoch, batch)
}

func TestAScanUnderWhichRedisIsWipedPutsNothingLessUrgentBackFirst(t *testing.T) {
	for at := 1; at <= 3; at++ {
		q := &wiped{at: at}
		r := newRig(t, 100, func(o *Options) {
			q.Queue = o.Queue.(*redisq.Queue)
			o.Queue, o.Jobs.Queue = q, q
		})
		q.flush = r.server.FlushAll
		ids := r.publish(0, 5, 9)
		clear(r.resting)
		_, err := r.reconcile(t.Context()) // first contact
		require.NoError(t, err)
		clear(r.resting)
		_, err = r.reconcile(t.Context())
		require.NoError(t, err)
		require.Equal(t, at, q.calls)
		for _, id := range ids {
			require.Equal(t, redisq.Missing, r.state(r.consumer.No, id))
		}
		r.round()
		for _, id := range ids {
			require.Equal(t, redisq.Ready, r.state(r.consumer.No, id))
		}
	}
}
