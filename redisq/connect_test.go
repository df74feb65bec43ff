package redisq_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/redisq"
)

func TestUnusableURLsAreRefusedWithoutShowingThePassword(t *testing.T) {
	for _, url := range []string{
		"",
		"127.0.0.1:6379",
		"http://u:s3cret@127.0.0.1",
		"redis://",
		"redis://u:s3cret@",
		"redis://u:s3cret%zz@127.0.0.1",
		"redis://u:s3cret@127.0.0.1:port",
		"redis://u:s3cret@127.0.0.1:70000",
		"redis://u:s3cret@127.0.0.1/db",
		"redis://u:s3cret@127.0.0.1/0?pool=s3cret",
		"redis://u:s3cret@a:1,b:2/1",
		"redis://u:s3cret@a:1,",
		"redis://u:s3cret@127.0.0.1:1", // refuses connections
	} {
		client, _, err := redisq.Connect(context.Background(), redisq.ConnectOptions{URL: url, Timeout: 5 * time.Second})
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "s3cret", url)
		require.Nil(t, client)
	}
}

func TestPasswordIsUsedAndNotShownOnRedis(t *testing.T) {
	server := servers.StartRedis(t, "--requirepass", "s3:cr/et@")
	address := strings.TrimPrefix(server.URL(), "redis://")
	client := connect(t, "redis://:s3%3Acr%2Fet%40@"+address)
	require.NoError(t, client.Ping(context.Background()).Err())
	_, _, err := redisq.Connect(context.Background(), redisq.ConnectOptions{URL: "redis://:wr0ng@" + address})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "wr0ng")
}

func TestNewRedisProcessMovesTheIncarnationBeforeItIsUsed(t *testing.T) {
	ctx := context.Background()
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	client, watch, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: server.URL(), Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer client.Close() //nolint:errcheck // nothing pending
	q := redisq.New(client, redisq.Options{Runs: watch})
	var lost, changed atomic.Int64
	q.OnLost(func(uint32) { lost.Add(1) })
	watch.OnChange(func() { changed.Add(1) })
	_, err = q.Enqueue(ctx, 1, []redisq.Job{{ID: ident.AtMillis(1)}}, redisq.Fresh)
	require.NoError(t, err)
	require.EqualValues(t, 1, q.Incarnation())
	server.Restart()
	require.Eventually(t, func() bool {
		s, err := q.Stats(ctx, 1)
		return err == nil && s.Ready == 1
	}, 20*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 2, q.Incarnation(), "the process is new")
	require.EqualValues(t, 1, changed.Load())
	require.EqualValues(t, 1, lost.Load(), "the epoch is the old one")
	require.NoError(t, q.Renew(ctx, 1))
	require.EqualValues(t, 2, lost.Load())
	require.EqualValues(t, 3, q.Incarnation())
}

// A cutter that is armed cuts the connection after the next command: Redis runs the
// command, and the client never reads the reply.
type cutter struct {
	net.Conn
	armed *atomic.Bool
}

func (c cutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.armed.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// cutting dials connections that armed cuts.
func cutting(armed *atomic.Bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return cutter{conn, armed}, nil
	}
}

func TestScriptWhoseAnswerIsLostRunsOnceOnRedis(t *testing.T) {
	ctx := context.Background()
	url := servers.Redis(t)
	var armed atomic.Bool
	dial := cutting(&armed)
	ours, _, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: url, Dialer: dial, Timeout: 5 * time.Second})
	require.NoError(t, err)
	defer ours.Close() //nolint:errcheck // nothing pending
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.Dialer = dial // a client that retries by default
	theirs := redis.NewClient(o)
	defer theirs.Close() //nolint:errcheck // nothing pending

	for _, client := range []redis.UniversalClient{ours, theirs} {
		q := redisq.New(client, redisq.Options{Prefix: ownPrefix()})
		var js []redisq.Job
		for i := range 20 {
			js = append(js, redisq.Job{ID: ident.AtMillis(int64(i + 1))})
		}
		_, err := q.Enqueue(ctx, 1, js, redisq.Fresh)
		require.NoError(t, err)
		_, err = q.Claim(ctx, 1, 1, time.Hour, redisq.Limits{}) // Redis knows the script now
		require.NoError(t, err)
		armed.Store(true)
		_, err = q.Claim(ctx, 1, 4, time.Hour, redisq.Limits{})
		require.Error(t, err)
		s, err := q.Stats(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, 5, s.Leased)
		removeKeys(t, client, strings.TrimSuffix(q.Keys(1)[0], "{c1}:r"))
	}
}

// The reply to an offer is lost, another broker claims the job, and Redis is emptied.
// Another call of the first process notices the loss. The offer must not be repeated to
// the new state, which lacks the lease.
func TestAnOfferWhoseAnswerIsLostIsNotRepeatedAfterALossOnRedis(t *testing.T) {
	ctx := context.Background()
	url := servers.Redis(t)
	var armed atomic.Bool
	client := connectTo(t, redisq.ConnectOptions{URL: url, Dialer: cutting(&armed), Timeout: 5 * time.Second})
	prefix := ownPrefix()
	t.Cleanup(func() { removeKeys(t, client, prefix) })
	q := redisq.New(client, redisq.Options{Prefix: prefix})
	batch := redisq.Batch{Consumer: 1, Jobs: jobsOf(ids(1))}
	_, errs := q.EnqueueMany(ctx, []redisq.Batch{{Consumer: 1, Jobs: jobsOf(ids(2)[1:])}}) // Redis knows the script now
	require.NoError(t, errs[0])
	armed.Store(true)
	out, errs := q.EnqueueMany(ctx, []redisq.Batch{batch})
	require.Error(t, errs[0])
	batch.Epoch = out[0].Epoch
	c, err := q.Claim(ctx, 1, 10, time.Hour, redisq.Limits{})
	require.NoError(t, err)
	require.Len(t, c.Leases, 2, "Redis has run the offer")
	removeKeys(t, client, prefix)
	s, err := q.Stats(ctx, 1)
	require.NoError(t, err)
	require.NotEqual(t, batch.Epoch, s.Epoch, "the loss is noticed")
	require.ErrorIs(t, q.EnqueueAgain(ctx, []redisq.Batch{batch})[0], redisq.ErrLost)
	s, err = q.Stats(ctx, 1)
	require.NoError(t, err)
	require.Zero(t, s.Ready)
}
