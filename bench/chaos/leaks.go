//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Usage is the resources of a broker process that dead clients may leave behind, without its
// connections to the stores if those are links of the rig.
type Usage struct {
	Goroutines, Descriptors int
	Files                   []string // temporary ones
}

// A Rest is the usage of a broker without load, before the campaign and after it.
type Rest struct {
	Broker        string
	Pool          int // connections that it may keep to a Redis without a link
	Before, After Usage
}

const (
	// moreGoroutines and moreDescriptors are how much a broker may have after the load beyond its
	// usage before, since an idle start has begun less work.
	moreGoroutines  = 8
	moreDescriptors = 4
	// redisPool is for the connections to a Redis that announces its own addresses.
	redisPool = 100
	// restPatience is how long a broker may take to release the resources of dead clients. It is
	// longer than the life of an idle connection.
	restPatience = 100 * time.Second
	restTick     = time.Second
)

// leaked lists the resources that a broker has not released.
func (r *Rest) leaked() (out []string) {
	if n := r.After.Goroutines - r.Before.Goroutines; n > moreGoroutines+r.Pool {
		out = append(out, fmt.Sprintf("%d goroutines more than the %d before", n, r.Before.Goroutines))
	}
	if n := r.After.Descriptors - r.Before.Descriptors; n > moreDescriptors+r.Pool {
		out = append(out, fmt.Sprintf("%d descriptors more than the %d before", n, r.Before.Descriptors))
	}
	if len(r.After.Files) > 0 {
		out = append(out, "temporary files: "+strings.Join(r.After.Files, " "))
	}
	return out
}

// metrics reads some metrics of a broker, each of which it must have.
func (n *node) metrics(ctx context.Context, into map[string]*int) error {
	_, _, text, err := administrator("http://"+n.addr).Call(ctx, http.MethodGet, "/metrics", nil, nil)
	if err != nil {
		return fmt.Errorf("metrics of %s: %w", n.name, err)
	}
	lines, found := bufio.NewScanner(bytes.NewReader(text)), 0
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if into[name] == nil {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("metrics of %s: %w", n.name, err)
		}
		*into[name], found = int(value), found+1
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("metrics of %s: %w", n.name, err)
	}
	if found != len(into) {
		return fmt.Errorf("metrics of %s: %d of the %d asked for", n.name, found, len(into))
	}
	return nil
}

// journalled is how many messages wait in the journals of the brokers. A broker that does not
// answer counts as one message.
func (r *rig) journalled(ctx context.Context) (sum int64) {
	for _, n := range r.nodes {
		waiting := 1
		if n.metrics(ctx, map[string]*int{"penstock_journal_messages": &waiting}) != nil {
			waiting = 1
		}
		sum += int64(waiting)
	}
	return sum
}

// usage reads the usage of a broker from its metrics and looks for temporary files in its folder.
func (n *node) usage(ctx context.Context) (u Usage, err error) {
	if err := n.metrics(ctx, map[string]*int{"go_goroutines": &u.Goroutines,
		"process_open_fds": &u.Descriptors}); err != nil {
		return u, err
	}
	mysql, redis := n.mysql.Connections(), 0
	if n.redis != nil {
		redis = n.redis.Connections()
	}
	u.Goroutines, u.Descriptors = u.Goroutines-mysql, u.Descriptors-mysql-redis // the driver of MySQL has one for each
	entries, err := os.ReadDir(n.temp)
	for _, e := range entries {
		u.Files = append(u.Files, e.Name())
	}
	return u, err
}

// measure reads the usage of every broker before the load.
func (r *rig) measure(ctx context.Context) error {
	for _, n := range r.nodes {
		u, err := n.usage(ctx)
		if err != nil {
			return err
		}
		rest := Rest{Broker: n.name, Before: u}
		if n.redis == nil {
			rest.Pool = redisPool
		}
		r.rests = append(r.rests, rest)
	}
	return nil
}

// comeToRest waits until every broker, whose clients are all gone, has released their resources, or
// until restPatience ends. The checker reports the remaining resources.
func (r *rig) comeToRest(ctx context.Context, say func(format string, args ...any)) {
	deadline := time.Now().Add(restPatience)
	for i, n := range r.nodes {
		rest := &r.rests[i]
		u, err := n.usage(ctx)
		for rest.After = u; (err != nil || len(rest.leaked()) > 0) && time.Now().Before(deadline) &&
			ctx.Err() == nil; rest.After = u {
			pause(ctx, restTick)
			u, err = n.usage(ctx)
		}
		if err != nil {
			r.note("does not report its usage", "%v", err)
		}
		say("%s at rest: %d goroutines, %d before; %d descriptors, %d before", n.name,
			u.Goroutines, rest.Before.Goroutines, u.Descriptors, rest.Before.Descriptors)
	}
}

// rests reports the resources that brokers have not released.
func (c *checker) rests() {
	for i := range c.e.Rests {
		for _, what := range c.e.Rests[i].leaked() {
			c.v.broken("leaks", "%s at rest: %s", c.e.Rests[i].Broker, what)
		}
	}
}
