//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

const (
	adminToken = "chaos-admin"
	// readyWithin bounds the start of a broker during faults in its stores. A broker gives up on
	// its stores after a minute and is started again.
	readyWithin = 3 * time.Minute
	// stopWithin is longer than a broker needs for its deliveries under way, its outcomes and its
	// last requests.
	stopWithin = 45 * time.Second
)

// A node is one broker with its links.
type node struct {
	child
	mu    sync.Mutex // locked during each change to the process
	no    int
	addr  string       // where it listens
	order string       // file for orders to a failpoint
	temp  string       // its folder for temporary files
	front *proxy.Proxy // clients -> broker
	mysql *proxy.Proxy // broker -> MySQL
	redis *proxy.Proxy // broker -> Redis; nil if Redis announces its own addresses
}

// newNode prepares a broker. It does not start it.
func newNode(no int, r *rig, env []string) (*node, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	n := &node{no: no, addr: addr, order: filepath.Join(r.dir, fmt.Sprintf("broker-%d.order", no)),
		temp: filepath.Join(r.dir, fmt.Sprintf("broker-%d.tmp", no))}
	if err := os.Mkdir(n.temp, 0o700); err != nil {
		return nil, err
	}
	n.child = child{name: fmt.Sprintf("broker-%d", no), program: r.broker, dir: r.dir, guard: r.guard,
		first: endings{GivesUp: true}, args: func(int) []string { return []string{"serve"} }}
	n.env = append(withoutSettings(os.Environ()), env...)
	n.env = append(n.env, "BROKER_LISTEN="+addr, "BROKER_USER_AGENT="+n.name, "TMPDIR="+n.temp, "BROKER_DATA_DIR="+
		filepath.Join(r.dir, fmt.Sprintf("broker-%d.data", no)), failpoint.EnvOrder+"="+n.order)
	n.front, err = proxy.Start(addr)
	return n, err
}

// withoutSettings drops settings of another broker from an environment.
func withoutSettings(env []string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, "BROKER_") {
			out = append(out, e)
		}
	}
	return out
}

// up starts the broker, starts it again if it gives up on its stores, and returns when it is ready.
func (n *node) up(ctx context.Context) error {
	deadline := time.Now().Add(readyWithin)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if !n.running() {
			if err := n.start(); err != nil {
				return err
			}
		}
		if n.ready(ctx) {
			n.expect(func(e *endings) { e.GivesUp = false })
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%s is not ready after %v", n.name, readyWithin)
}

var probe = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
	CheckRedirect: noRedirect}

// noRedirect keeps tokens at the host that they are meant for.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (n *node) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := probe.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// arm makes the broker kill itself at the count-th pass of a point from now on.
func (n *node) arm(point string, count int) error {
	if err := os.WriteFile(n.order, fmt.Appendf(nil, "%s:%d", point, count), 0o600); err != nil {
		return err
	}
	n.expect(func(e *endings) { e.Killed = true })
	n.signal(syscall.SIGUSR2)
	return nil
}

// Close kills the broker and ends its links.
func (n *node) Close() {
	n.kill()
	for _, p := range []*proxy.Proxy{n.front, n.mysql, n.redis} {
		if p != nil {
			_ = p.Close() // the error of a second close
		}
	}
}

// freeAddr returns an address with a port below the range of outgoing connections, so that it is
// still free when a killed process is started again.
func freeAddr() (string, error) {
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(3_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("found no free port")
}
