package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/cluster"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/gcpace"
	"github.com/penstock-broker/penstock/internal/tool/timerslack"
	"github.com/penstock-broker/penstock/redisq"
)

// stages are the names that FLOOR_WITH may have.
var stages = []string{"accept", "insert", "queue", "post", "outcome", "process"}

func main() {
	with, err := stagesOf(os.Getenv("FLOOR_WITH"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
	if with["process"] {
		_ = timerslack.Set(timerslack.Usual) // first of all, because the program starts over with it
		gcpace.Start()
	}
	if err := run(context.Background(), with); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func stagesOf(text string) (map[string]bool, error) {
	with := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !slices.Contains(stages, name) {
			return nil, fmt.Errorf("FLOOR_WITH names %q; there are %s", name, strings.Join(stages, ", "))
		}
		with[name] = true
	}
	return with, nil
}

// A store keeps messages and outcomes.
type store interface {
	insert(ctx context.Context, batch []*durable.Message) []error
	record(ctx context.Context, done []delivered) error
}

// A queue gives each job to one claim.
type queue interface {
	add(ctx context.Context, ids []ident.ID) error
	claim(ctx context.Context) ([]ident.ID, error)
	remove(ctx context.Context, ids []ident.ID) error
}

// A poster sends a message to the consumer, and returns after its success.
type poster interface {
	post(k *durable.Consumer, m *durable.Message) error
}

// A delivered is a message that the consumer has taken.
type delivered struct {
	id   ident.ID
	atMs int64 // Unix ms
}

// A floor has the stages of one process.
type floor struct {
	with      map[string]bool
	durable   *durable.Store // of the catalogue, in each case
	catalogue *catalogue.Catalogue
	node      *cluster.Node
	client    *egress.Client
	inserts   store // of messages
	outcomes  store
	queue     queue
	poster    poster
	cache     cache
	log       *slog.Logger

	channel  atomic.Pointer[catalogue.Channel]
	producer atomic.Pointer[durable.Producer]
	consumer atomic.Pointer[durable.Consumer]
	target   atomic.Pointer[egress.Target]

	fanout *group[ident.ID]
	ends   *group[delivered]
}

func run(ctx context.Context, with map[string]bool) error {
	dsn, address := os.Getenv("BROKER_MYSQL_DSN"), os.Getenv("BROKER_REDIS_URL")
	if dsn == "" || address == "" {
		return errors.New("BROKER_MYSQL_DSN and BROKER_REDIS_URL are needed")
	}
	f := &floor{with: with, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err := f.openStores(ctx, dsn); err != nil {
		return err
	}
	client, runs, err := redisq.Connect(ctx, redisq.ConnectOptions{URL: address})
	if err != nil {
		return err
	}
	if err := f.openQueue(ctx, client, runs); err != nil {
		return err
	}
	loopback, err := egress.ParsePolicy("private", nil)
	if err != nil {
		return err
	}
	f.client = egress.NewClient(egress.Options{Policy: loopback, UserAgent: "Penstock", MaxConnsPerHost: workers})
	f.poster = &plainPoster{}
	if with["post"] {
		f.poster = guardedPoster{f.client, f}
	}
	f.start(ctx)
	return f.serve(os.Getenv("BROKER_LISTEN"))
}

// openStores opens the stores of the stages. The catalogue is always that of the broker.
func (f *floor) openStores(ctx context.Context, dsn string) (err error) {
	if f.durable, err = durable.OpenMySQL(ctx, dsn, durable.Options{}); err != nil {
		return err
	}
	if err := f.durable.Migrate(ctx); err != nil {
		return err
	}
	f.catalogue = catalogue.New(f.durable, f.log)
	if err := f.catalogue.Refresh(ctx); err != nil {
		return err
	}
	if f.node, err = cluster.New(ctx, f.durable, "floor", f.log); err != nil {
		return err
	}
	plain, err := openPlainStore(ctx, dsn)
	if err != nil {
		return err
	}
	f.inserts, f.outcomes = plain, plain
	if f.with["insert"] {
		f.inserts = durableStore{f.durable, f}
	}
	if f.with["outcome"] {
		f.outcomes = durableStore{f.durable, f}
	}
	return nil
}

func (f *floor) openQueue(ctx context.Context, client redis.UniversalClient, runs *redisq.RunWatch) error {
	if f.with["queue"] {
		f.queue = leasedQueue{redisq.New(client, redisq.Options{Runs: runs}), f}
		return nil
	}
	f.queue = plainQueue{client}
	return client.Del(ctx, waitingKey, leasedKey).Err()
}
