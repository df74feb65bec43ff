//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-broker/penstock/bench/target"
	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/test/servers"
)

// The brokers' own user may not do what an administrator may: write to a
// read-only server, for one.
const (
	brokerUser = "penstock"
	database   = "penstock"
)

// A guarded is a process that faults and supervision change in turn.
type guarded struct {
	mu sync.Mutex // locked during each change to the process
	child
	finished bool // the process has done its work and is not started again
}

// finish ends the process for good.
func (g *guarded) finish(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finished = true
	g.stop(d)
}

// A rig has the brokers, stores, links, producers and consumers of one campaign.
type rig struct {
	plan   *plan
	dir    string
	guard  *guard
	broker string // program
	next   string // newer program, which replaces it; empty: none

	mysql     *servers.MySQLNode
	storeMu   sync.Mutex // locked during a fault of MySQL
	db        *sql.DB    // as administrator, past the proxies
	redis     *redisWorld
	redisMu   sync.Mutex // locked during a fault of Redis
	nodes     []*node
	sinkLinks []*proxy.Proxy // brokers -> push endpoints, by channel

	producer, sinks, puller, mortals, neighbours *guarded

	victims []*child // one of each kind, at most one of them alive

	rests    []Rest // of each broker
	upgraded Upgrade

	mu     sync.Mutex
	faults []Fault
	deaths []Death // of victims
	notes  []Note
	pauses []Pause
	attack Attack
}

// A Note is something that no journal shows: a broker that died by itself.
type Note struct {
	What, Detail string
	At           time.Time
}

func (r *rig) note(what, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, Note{what, fmt.Sprintf(format, args...), time.Now()})
}

// build starts everything but the producer. The rig must be closed also when it fails.
func build(ctx context.Context, c *Config, topology, dir string) (*rig, error) {
	r := &rig{plan: newPlan(c.Rate, c.Seed), dir: dir}
	r.plan.Deaths, r.plan.Neighbours = c.Deaths, c.Neighbours
	var err error
	if r.broker, err = target.Broker(c.Broker); err != nil {
		return r, err
	}
	if r.next = c.Next; r.next != "" {
		if r.next, err = target.Broker(c.Next); err != nil {
			return r, err
		}
	}
	if r.guard, err = startGuard(); err != nil {
		return r, err
	}
	if r.mysql, err = servers.StartMySQLNode(); err != nil {
		return r, err
	}
	if r.redis, err = startRedis(ctx, topology); err != nil {
		return r, err
	}
	if err := r.openDatabase(ctx); err != nil {
		return r, err
	}
	if err := r.startSinks(); err != nil {
		return r, err
	}
	if r.plan.Inside, err = freeAddr(); err != nil {
		return r, err
	}
	for i := range c.Brokers {
		if err := r.addBroker(ctx, i); err != nil {
			return r, err
		}
	}
	if err := r.archive(ctx); err != nil {
		return r, err
	}
	if err := r.plan.write(r.planPath()); err != nil {
		return r, err
	}
	if err := r.register(ctx); err != nil {
		return r, err
	}
	r.puller, r.producer = r.role("chaos-puller"), r.role("chaos-producer")
	if err := r.measure(ctx); err != nil {
		return r, err
	}
	if err := r.puller.start(); err != nil {
		return r, err
	}
	if err := r.startHarm(ctx, c); err != nil {
		return r, err
	}
	return r, r.producer.start()
}

// startHarm starts the clients that die and the greedy neighbours, as far as the campaign has them.
func (r *rig) startHarm(ctx context.Context, c *Config) error {
	if c.Deaths > 0 {
		r.mortals = r.role("chaos-mortals")
		for _, v := range victims {
			r.victims = append(r.victims, &r.role(v.role).child)
		}
		if err := r.mortals.start(); err != nil {
			return err
		}
	}
	if c.Neighbours == 0 {
		return nil
	}
	if err := r.registerNeighbours(ctx); err != nil {
		return err
	}
	r.neighbours, r.attack.Start = r.role(neighboursRole), time.Now()
	return r.neighbours.start()
}

func (r *rig) planPath() string { return filepath.Join(r.dir, "plan.json") }

// journalOf is where the n-th process of a role writes.
func (r *rig) journalOf(role string, n int) string {
	return filepath.Join(r.dir, fmt.Sprintf("%s-%d.journal", role, n))
}

// role prepares a process of the rig's own program.
func (r *rig) role(name string) *guarded {
	return &guarded{child: child{name: name, dir: r.dir, guard: r.guard, env: withoutSettings(os.Environ()),
		args: func(start int) []string {
			args := []string{name, "--plan", r.planPath(), "--journal", r.journalOf(name, start)}
			return append(args, "--from", fmt.Sprint(firstOf(name, start)))
		}}}
}

// roles are the processes that live for the whole campaign.
func (r *rig) roles() (out []*guarded) {
	for _, c := range []*guarded{r.producer, r.sinks, r.puller, r.mortals, r.neighbours} {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// openDatabase makes the database and the brokers' user.
func (r *rig) openDatabase(ctx context.Context) error {
	cfg, err := mysql.ParseDSN(r.mysql.RootDSN())
	if err != nil {
		return err
	}
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = 5*time.Second, 2*time.Minute, time.Minute
	if r.db, err = sql.Open("mysql", cfg.FormatDSN()); err != nil {
		return err
	}
	r.db.SetMaxIdleConns(1)
	for _, statement := range []string{
		"CREATE DATABASE " + database,
		"CREATE USER " + brokerUser + "@'127.0.0.1'",
		"CREATE USER " + brokerUser + "@'localhost'",
		"GRANT ALL ON " + database + ".* TO " + brokerUser + "@'127.0.0.1'",
		"GRANT ALL ON " + database + ".* TO " + brokerUser + "@'localhost'",
	} {
		if _, err := r.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// startSinks starts the push endpoints, with a link for each channel in front.
func (r *rig) startSinks() error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	r.plan.Sinks = addr
	for range r.plan.Channels {
		p, err := proxy.Start(addr)
		if err != nil {
			return err
		}
		r.sinkLinks = append(r.sinkLinks, p)
	}
	if err := r.plan.write(r.planPath()); err != nil {
		return err
	}
	r.sinks = r.role("chaos-sinks")
	return r.sinks.start()
}

// addBroker starts a broker with its links to MySQL, Redis and clients.
func (r *rig) addBroker(ctx context.Context, i int) error {
	toMySQL, err := proxy.Start(fmt.Sprintf("127.0.0.1:%d", r.mysql.Port()))
	if err != nil {
		return err
	}
	var toRedis *proxy.Proxy
	if r.redis.kind == standalone {
		if toRedis, err = proxy.Start(r.redis.nodes[0].Addr()); err != nil {
			return errors.Join(err, toMySQL.Close())
		}
	}
	env := append(r.redis.settings(toRedis),
		"BROKER_MYSQL_DSN="+brokerUser+"@tcp("+toMySQL.Addr()+")/"+database,
		"BROKER_ADMIN_TOKEN="+adminToken, "BROKER_OPEN_MANAGEMENT=true",
		"BROKER_DELIVERY_TIMEOUT="+deliveryTimeout.String(), "BROKER_STOP_TIMEOUT="+stopTimeout.String(),
		"BROKER_RATIONAL_DELAY="+rationalDelay.String(), fmt.Sprint("BROKER_MAX_RETRIES=", maxRetries),
		"BROKER_RETENTION="+retention.String(), "BROKER_RETRY_BACKOFF="+retryBackoff, "BROKER_RETRY_MAX_DELAY="+
			retryMaxDelay.String(),
		"BROKER_LOG_FORMAT=json", "BROKER_LOG_LEVEL=info")
	if r.plan.Neighbours > 0 {
		env = append(env, "BROKER_ALLOW_DELETE=true", "BROKER_FETCH_EGRESS_ALLOW=127.0.0.0/8")
	}
	n, err := newNode(i, r, env)
	if err != nil {
		return err
	}
	n.mysql, n.redis = toMySQL, toRedis
	r.nodes = append(r.nodes, n)
	r.plan.Brokers, r.plan.Doors = append(r.plan.Brokers, n.front.Addr()), append(r.plan.Doors, n.addr)
	return n.up(ctx)
}

// Close ends every process and link. The files of the campaign stay in its folder.
func (r *rig) Close() error {
	for _, c := range r.roles() {
		c.kill()
	}
	for _, c := range r.victims {
		c.kill()
	}
	for _, n := range r.nodes {
		n.Close()
	}
	for _, p := range r.sinkLinks {
		_ = p.Close() // a listener, closed once
	}
	var errs []error
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	if r.redis != nil {
		errs = append(errs, r.redis.Close())
	}
	if r.mysql != nil {
		errs = append(errs, r.mysql.Close())
	}
	if r.guard != nil {
		errs = append(errs, r.guard.Close())
	}
	return errors.Join(errs...)
}
