package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A clientSubject is a client with its worker on one kind of store.
type clientSubject struct {
	name  string // of the -subjects flag
	title string // in tables
	// language is python or node; client is the package that its program imports.
	language, client string
	// store is a name of clientStores; database is that of a Redis which several share.
	store    string
	database int
	// acks is when Celery acknowledges a job: early, as it does unless told otherwise, or late.
	acks string
	// flushed tells whether a job is on disk when its publisher is answered.
	flushed string
}

const (
	storeSQLite   = "sqlite"
	storeMariaDB  = "mariadb"
	storeEverysec = "everysec"
	storeAlways   = "always"
)

// clients are all that can be measured, in the order of the tables.
var clients = []*clientSubject{
	{"penstock-python-sqlite", "Penstock, Python, embedded SQLite", "python", "penstock", storeSQLite, 0, "", "yes"},
	{"penstock-python-mariadb", "Penstock, Python, MariaDB and Redis", "python", "penstock", storeMariaDB, 0, "", "yes"},
	{"celery-everysec", "Celery, `acks_late`, Redis everysec", "python", "celery", storeEverysec, 1, "late", "**no**"},
	{"celery-always", "Celery, `acks_late`, Redis always", "python", "celery", storeAlways, 1, "late", "yes"},
	{"celery-defaults", "Celery as it comes, Redis everysec", "python", "celery", storeEverysec, 2, "early", "**no**"},
	{"penstock-node-sqlite", "Penstock, Node, embedded SQLite", "node", "penstock/bullmq", storeSQLite, 0, "", "yes"},
	{"penstock-node-mariadb", "Penstock, Node, MariaDB and Redis", "node", "penstock/bullmq", storeMariaDB, 0, "", "yes"},
	{"bullmq-everysec", "BullMQ, Redis everysec", "node", "bullmq", storeEverysec, 3, "", "**no**"},
	{"bullmq-always", "BullMQ, Redis always", "node", "bullmq", storeAlways, 3, "", "yes"},
}

func (c *clientSubject) ours() bool { return strings.HasPrefix(c.client, "penstock") }

func clientNames() (names []string) {
	for _, c := range clients {
		names = append(names, c.name)
	}
	return names
}

func clientNamed(name string) (*clientSubject, error) {
	for _, c := range clients {
		if c.name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("-subjects: no %q among %v", name, clientNames())
}

// clientStores are the servers of all clients. They run from the first measurement to the last: an
// idle one costs next to nothing, and alternating clients needs no start of servers in between.
type clientStores struct {
	groups   []*group
	urls     map[string]string // by the store
	versions map[string]string
}

func startClientStores(ctx context.Context, s *site, o *clientOptions) (_ *clientStores, err error) {
	stores := &clientStores{urls: map[string]string{}, versions: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, stores.Close())
		}
	}()
	for _, name := range []string{"mariadbd", "mariadb-install-db", "redis-server"} {
		if s.programs[name], err = locate(name, ""); err != nil {
			return nil, fmt.Errorf("install %s: %w", name, err)
		}
	}
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for _, appendfsync := range []string{storeEverysec, storeAlways} {
		addr, version, err := stores.redis(starting, s, appendfsync)
		if err != nil {
			return nil, err
		}
		stores.urls[appendfsync], stores.versions["Redis "+appendfsync] = "redis://"+addr+"/", version
	}
	if stores.urls[storeSQLite], err = stores.broker(starting, s, o); err != nil {
		return nil, err
	}
	if stores.urls[storeMariaDB], err = stores.broker(starting, s, o, storeMariaDB); err != nil {
		return nil, err
	}
	return stores, stores.tell(starting, o)
}

func (c *clientStores) group(s *site) (*group, error) {
	g, err := newGroup(s)
	if err == nil {
		c.groups = append(c.groups, g)
	}
	return g, err
}

func (c *clientStores) redis(ctx context.Context, s *site, appendfsync string) (addr, version string, err error) {
	g, err := c.group(s)
	if err != nil {
		return "", "", err
	}
	return startRedis(ctx, s, g, appendfsync)
}

// broker starts a broker on embedded stores, or on MariaDB and Redis, and returns its URL.
func (c *clientStores) broker(ctx context.Context, s *site, o *clientOptions, on ...string) (string, error) {
	g, err := c.group(s)
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(o.broker, "serve")
	cmd.Env = append(plainEnv(), "BROKER_LISTEN="+loopback(port), "BROKER_LOG_LEVEL=warn",
		"BROKER_DATA_DIR="+filepath.Join(g.folder, "data"))
	if len(on) > 0 {
		dsn, err := startMariaDB(ctx, s, g)
		if err != nil {
			return "", err
		}
		addr, _, err := startRedis(ctx, s, g, storeEverysec)
		if err != nil {
			return "", err
		}
		cmd.Env = append(cmd.Env, "BROKER_MYSQL_DSN="+dsn, "BROKER_REDIS_URL=redis://"+addr+"/0")
	}
	p, err := g.start("broker", syscall.SIGTERM, cmd)
	if err != nil {
		return "", err
	}
	url := "http://" + loopback(port)
	return url, p.ready(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := probe.Do(req)
		if err != nil {
			return err
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /readyz: %s", res.Status)
		}
		return nil
	})
}

// probe asks a broker on this machine, and nobody else.
var probe = http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// tell asks the programs for their versions.
func (c *clientStores) tell(ctx context.Context, o *clientOptions) error {
	commands := map[string][]string{
		"Penstock": {o.broker, "version"},
		"Celery": {o.python, "-c", "import celery, kombu, redis, sys; print('celery', celery.__version__, " +
			"'kombu', kombu.__version__, 'redis-py', redis.__version__, 'Python', sys.version.split()[0])"},
		"BullMQ": {o.node, "--input-type=module", "-e", "import { readFileSync } from 'node:fs'; " +
			"const v = (p) => JSON.parse(readFileSync(`node_modules/${p}/package.json`)).version; " +
			"console.log('bullmq', v('bullmq'), 'ioredis', v('ioredis'), 'Node', process.version)"},
	}
	for name, command := range commands {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir, cmd.Env = o.folder, plainEnv()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		c.versions[name] = strings.Join(strings.Fields(string(out)), " ")
	}
	return nil
}

// url returns where a client finds its jobs.
func (c *clientStores) url(of *clientSubject) string {
	if of.ours() {
		return c.urls[of.store]
	}
	return c.urls[of.store] + strconv.Itoa(of.database)
}

// Close stops the servers and removes their data.
func (c *clientStores) Close() error {
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.Close())
	}
	c.groups = nil
	return errors.Join(errs...)
}

// plainEnv is the environment without settings of this shell for brokers and clients.
func plainEnv() (out []string) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(name, "BROKER_") && !strings.HasPrefix(name, "PENSTOCK_") {
			out = append(out, e)
		}
	}
	return out
}
