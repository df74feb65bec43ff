package redisq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ConnectOptions are the options of Connect. URL is required.
type ConnectOptions struct {
	// URL is redis:// or rediss:// (TLS), with user, password and database in their
	// usual places. Several addresses, separated by commas, are the seeds of a Cluster,
	// or the sentinels when Master is set. Only the first needs scheme and user. A
	// single address may also be a node of a Cluster.
	URL    string
	Master string // Sentinel master name
	// Dialer replaces the TCP (and, for rediss, TLS) dialer when not nil.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// PoolSize is the number of connections; 0 means ten per CPU.
	PoolSize int
	// Timeout bounds one exchange if the context has no earlier deadline; 0 means one
	// second.
	Timeout time.Duration
	// Away is told of a Redis that cannot be reached, which is then no error of Connect: the client
	// connects when it is there. The caller asks Check until then. nil: it is an error.
	Away func(error)
}

// Connect opens a client for a Queue. It checks that Redis answers, has version 6.2 or
// later, and drops no keys. The client never retries a script and obeys the deadlines of contexts. The
// caller passes the RunWatch to New. No error contains a password.
func Connect(ctx context.Context, o ConnectOptions) (redis.UniversalClient, *RunWatch, error) {
	watch := &RunWatch{}
	client, err := dial(ctx, o, watch)
	if err != nil {
		return nil, nil, err
	}
	if err := Check(ctx, client); err != nil {
		if o.Away == nil || !Away(err) {
			return nil, nil, errors.Join(err, client.Close())
		}
		o.Away(err)
	}
	return client, watch, nil
}

// Dial opens a client for a look at a Redis, whatever it is. The first command shows whether it answers.
func Dial(ctx context.Context, o ConnectOptions) (redis.UniversalClient, error) {
	return dial(ctx, o, &RunWatch{})
}

func dial(ctx context.Context, o ConnectOptions, watch *RunWatch) (redis.UniversalClient, error) {
	u, err := checkedURL(o.URL, o.Master)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	u.MasterName = o.Master
	u.Dialer = o.Dialer
	u.OnConnect = watch.connected
	u.Protocol = 2 // no feature of RESP3 is used, and proxies support 2
	u.DisableIdentity = true
	u.MaxRetries = -1
	u.DialTimeout = 2 * time.Second
	u.DialerRetries = 1
	u.ReadTimeout = o.Timeout
	u.WriteTimeout = o.Timeout
	u.PoolTimeout = o.Timeout
	u.PoolSize = o.PoolSize
	u.ContextTimeoutEnabled = true
	client := redis.NewUniversalClient(u)
	if o.Master == "" && isCluster(ctx, client) {
		// With a single address the client assumes one server, but a Cluster may be
		// behind a single name. (With a database number, the Cluster refuses the
		// connection, and check reports that.)
		_ = client.Close()
		u.IsClusterMode = true
		client = redis.NewUniversalClient(u)
	}
	return client, nil
}

// Away reports whether an error of Check says that nothing could be reached, or that Redis is still
// loading its data. Another one is of a Redis that the settings do not fit.
func Away(err error) bool {
	var op *net.OpError
	var name *net.DNSError
	var refused redis.Error
	switch {
	case errors.As(err, &refused):
		return redis.HasErrorPrefix(refused, "LOADING")
	case errors.As(err, &name), errors.As(err, &op) && op.Op == "dial":
		return true
	}
	var slow net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
}

// isCluster reports whether a client of one server is connected to a Cluster node.
func isCluster(ctx context.Context, client redis.UniversalClient) bool {
	if _, already := client.(*redis.ClusterClient); already {
		return false
	}
	info, err := client.Info(ctx, "server").Result()
	return err == nil && infoField(info, "redis_mode") == "cluster"
}

// Check verifies that Redis answers, that the queue can be on it, and that it is no node of a Cluster
// where the client is one of a single server. A Redis that says nothing of itself passes.
func Check(ctx context.Context, client redis.UniversalClient) error {
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redisq: connect: %w", err)
	}
	// This connects to all masters of a Cluster now: later each would look like a new process.
	servers, _ := Servers(ctx, client)
	for _, s := range servers {
		if _, cluster := client.(*redis.ClusterClient); !cluster && s.Cluster {
			return errors.New("redisq: connect: Redis is a Cluster, which was not known when it could not be reached")
		}
		if err := s.Unfit(); err != nil {
			return err
		}
	}
	return nil
}

// CheckURL returns what is wrong with a URL of ConnectOptions, without opening a connection. The error
// shows no password.
func CheckURL(url, master string) error {
	_, err := checkedURL(url, master)
	return err
}

func checkedURL(text, master string) (*redis.UniversalOptions, error) {
	u, err := parseURL(text)
	if err == nil && len(u.Addrs) > 1 && u.DB != 0 && master == "" {
		return nil, errors.New("redisq: a Redis Cluster has database 0 only")
	}
	return u, err
}

// parseURL reads addresses, credentials, database and TLS. Its errors name the wrong part
// but never quote it, because it may be the password.
func parseURL(s string) (*redis.UniversalOptions, error) {
	out := &redis.UniversalOptions{}
	// A comma separates addresses only after the credentials.
	rest, found := strings.CutPrefix(s, "redis://")
	if !found {
		if rest, found = strings.CutPrefix(s, "rediss://"); !found {
			return nil, errors.New("redisq: the Redis URL must begin with redis:// or rediss://")
		}
		out.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var err1, err2 error
		out.Username, err1 = url.PathUnescape(user)
		out.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return nil, errors.New("redisq: user or password in the Redis URL is not correctly percent-encoded")
		}
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	if query != "" {
		return nil, errors.New("redisq: the Redis URL takes no parameters after a question mark")
	}
	for i, part := range strings.Split(rest, ",") {
		part = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(part), "redis://"), "rediss://")
		addr, db, _ := strings.Cut(part, "/")
		if db != "" {
			n, err := strconv.Atoi(db)
			if err != nil || n < 0 || out.DB != 0 && out.DB != n {
				return nil, errors.New("redisq: the path of the Redis URL must be a database number")
			}
			out.DB = n
		}
		if addr == "" {
			return nil, fmt.Errorf("redisq: address %d in the Redis URL is empty", i+1)
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = strings.Trim(addr, "[]"), "6379"
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("redisq: address %d in the Redis URL has no usable port", i+1)
		}
		if host == "" {
			host = "localhost"
		}
		out.Addrs = append(out.Addrs, net.JoinHostPort(host, port))
	}
	return out, nil
}
