package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-broker/penstock/bench/rawhttp"
)

// A Stage is the ceiling of one step of a message, measured alone.
type Stage struct {
	Name      string
	Rate      float64 // operations per second
	CPUMicros float64 // per operation, over all processes involved
	// Micros is CPUMicros by process.
	Micros  map[string]float64
	Others  float64 // cores that other processes used in that time
	Workers int
	Unit    string // the operation that is counted
}

// Limits are the ceilings of a machine, measured at one time.
type Limits struct {
	At     time.Time
	Stages []Stage
}

// Names of stages.
const (
	StageClient  = "load client alone"
	StageHTTP    = "HTTP exchange"
	StageInsert  = "durable insert"
	StageOutcome = "outcome rows"
	StageFsync   = "fsync"
	StageRedis1  = "Redis cycle, batch 1"
	StageRedis10 = "Redis cycle, batch 10"
	StageRedis   = "Redis cycle, batch 100"
	StagePush    = "push POST"
)

// Stage returns the stage of that name, nil when it was not measured.
func (l *Limits) Stage(name string) *Stage {
	for i := range l.Stages {
		if l.Stages[i].Name == name {
			return &l.Stages[i]
		}
	}
	return nil
}

// A LimitsConfig has the settings of a measurement of limits.
type LimitsConfig struct {
	MySQL, Redis string // empty: the embedded stores
	Payload      int
	Connections  int           // of the HTTP stages
	Rows         int           // per batch of the durable stages
	Writers      int           // batches in flight
	Each         time.Duration // per stage
}

func (c *LimitsConfig) register(f *flag.FlagSet) {
	f.StringVar(&c.MySQL, "mysql", "", "measure this MySQL `DSN`: a scratch database, rows stay in it; empty: SQLite "+
		"in a temporary folder")
	f.StringVar(&c.Redis, "redis", "", "measure this Redis `URL`, under a separate key prefix; empty: the embedded server")
	f.IntVar(&c.Payload, "payload", 1024, "bytes of a message")
	f.IntVar(&c.Connections, "connections", 64, "of the HTTP stages")
	f.IntVar(&c.Rows, "rows", 256, "per batch of the durable stages")
	f.IntVar(&c.Writers, "writers", 2, "batches in flight at the durable stages")
	f.DurationVar(&c.Each, "each", 3*time.Second, "time per stage")
}

func (c *LimitsConfig) validate() error {
	switch {
	case c.Payload < IdentitySize || c.Payload > 1<<20:
		return fmt.Errorf("--payload is %d: want %d to %d", c.Payload, IdentitySize, 1<<20)
	case c.Connections < 1 || c.Connections > 4096 || c.Rows < 1 || c.Rows > 1024 || c.Writers < 1 || c.Writers > 64:
		return errors.New("want 1 to 4096 connections, 1 to 1024 rows, 1 to 64 writers")
	case c.Each < 10*time.Millisecond || c.Each > 10*time.Minute:
		return fmt.Errorf("--each is %s: want 10ms to 10m", c.Each)
	}
	return nil
}

// limitsConfigOf returns the settings that measure the stores and sizes of a run.
func limitsConfigOf(c *Config) LimitsConfig {
	return LimitsConfig{MySQL: c.MySQL, Redis: c.Redis, Payload: min(max(c.Payload, IdentitySize), 1<<20),
		Connections: min(c.Connections, 4096), Rows: 256, Writers: 2, Each: time.Second}
}

// MeasureLimits measures all stages, one after the other.
func MeasureLimits(ctx context.Context, c LimitsConfig) (*Limits, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "penstock-limits-")
	if err != nil {
		return nil, err
	}
	l := &Limits{At: time.Now().UTC()}
	parts := []func(context.Context, *LimitsConfig, string, *Limits) error{
		httpLimits, durableLimits, fsyncLimit, redisLimits,
	}
	for _, part := range parts {
		if err = part(ctx, &c, dir, l); err != nil {
			err = fmt.Errorf("measure limits: %w", err)
			break
		}
	}
	return l, errors.Join(err, os.RemoveAll(dir))
}

// measure runs op in workers goroutines for the time of a stage and adds the
// stage. op does some work and returns how many operations that was.
func (l *Limits) measure(ctx context.Context, c *LimitsConfig, s Stage, others []Process, op func(ctx context.Context,
	worker int) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, c.Each+time.Minute) // of a store that hangs
	defer cancel()
	var ops atomic.Int64
	var g errgroup.Group
	// The first tenth is warm-up: connections, statements, caches.
	start := time.Now()
	warm, end := start.Add(c.Each/10), start.Add(c.Each)
	var metered atomic.Bool
	for i := range s.Workers {
		g.Go(func() error {
			// Each worker does something that is measured, however slow the machine is.
			for counted := false; (!counted || time.Now().Before(end)) && ctx.Err() == nil; {
				counted = metered.Load()
				n, err := op(ctx, i)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				ops.Add(int64(n))
			}
			return ctx.Err()
		})
	}
	time.Sleep(time.Until(warm))
	meter, from, before := NewCPUMeter(others), time.Now(), ops.Load()
	metered.Store(true)
	err := g.Wait()
	seconds := time.Since(from).Seconds()
	if n := float64(ops.Load() - before); n > 0 {
		s.Rate = n / seconds
		used := meter.Seconds()
		s.CPUMicros, s.Micros = total(used)*1e6/n, perOperation(used, n)
		s.Others = used[Disturbance] / seconds
	}
	l.Stages = append(l.Stages, s)
	return err
}

// perOperation returns the CPU microseconds of each process of a measurement.
func perOperation(seconds map[string]float64, n float64) map[string]float64 {
	out := map[string]float64{}
	for name, s := range seconds {
		if !Foreign(name) {
			out[name] = s * 1e6 / n
		}
	}
	return out
}

// httpLimits measures the load client against the cheapest possible answer and against an HTTP
// server with an empty handler, and the HTTP client of push deliveries.
func httpLimits(ctx context.Context, c *LimitsConfig, _ string, l *Limits) error {
	payloads, err := NewPayloads(c.Payload)
	if err != nil {
		return err
	}
	body := payloads.Append(nil, Identity{})
	request := rawhttp.NewTemplate("POST", "/channel/limits/broadcast", "limits", "Content-Type",
		"application/octet-stream",
		"X-Broker-Channel-Token", "token-of-the-channel", "X-Broker-Producer-ID", "producer", "X-Broker-Producer-Token",
		"token-of-the-producer").AppendHead(nil)
	request = append(rawhttp.AppendLength(request, len(body)), body...)
	roundTrip := func(addr string) func(context.Context, int) (int, error) {
		conns := make([]*rawhttp.Conn, c.Connections)
		for i := range conns {
			conns[i] = rawhttp.New(addr, 10*time.Second)
		}
		return func(_ context.Context, worker int) (int, error) {
			for range 20 {
				if res, err := conns[worker].Do(request); err != nil || res.Status != http.StatusCreated {
					return 0, errors.Join(err, errors.New("no 201"))
				}
			}
			return 20, nil
		}
	}
	echo, err := startPeer("--echo", strconv.Itoa(len(request)))
	if err != nil {
		return err
	}
	err = l.measure(ctx, c, Stage{Name: StageClient, Workers: c.Connections, Unit: "POST, answered without being read"},
		[]Process{echo.process}, roundTrip(echo.addr))
	if err := errors.Join(err, echo.Close()); err != nil {
		return err
	}
	noop, err := startPeer()
	if err != nil {
		return err
	}
	err = l.measure(ctx, c, Stage{Name: StageHTTP, Workers: c.Connections, Unit: "POST, client and server"},
		[]Process{noop.process}, roundTrip(noop.addr))
	if err == nil {
		err = pushLimit(ctx, c, l, noop, body)
	}
	return errors.Join(err, noop.Close())
}

// pushLimit measures the client that pushes use.
func pushLimit(ctx context.Context, c *LimitsConfig, l *Limits, noop *peer, body []byte) error {
	client := &fasthttp.HostClient{Addr: noop.addr, MaxConns: c.Connections, MaxIdemponentCallAttempts: 1,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	return l.measure(ctx, c, Stage{Name: StagePush, Workers: c.Connections, Unit: "POST, client and sink"},
		[]Process{noop.process}, func(context.Context, int) (int, error) {
			for range 20 {
				if err := pushOnce(client, "http://"+noop.addr+"/0", body); err != nil {
					return 0, err
				}
			}
			return 20, nil
		})
}

func pushOnce(client *fasthttp.HostClient, url string, body []byte) error {
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(url)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.Set("X-Broker-Message-ID", "00000000000000000000")
	req.SetBodyRaw(body)
	return client.Do(req, res)
}

func limitsCommand(ctx context.Context, args []string, out, progress io.Writer) (int, error) {
	var c LimitsConfig
	var o output
	f := flags("limits")
	c.register(f)
	f.StringVar(&o.json, "json", "", "write the report to this `file`")
	if err := parse(f, args, out); err != nil {
		return ExitUsage, err
	}
	if err := c.validate(); err != nil {
		return ExitUsage, err
	}
	l, err := MeasureLimits(ctx, c)
	if err != nil {
		return ExitCannotStart, err
	}
	r := newReport(ctx, "limits", &Config{MySQL: c.MySQL, Redis: c.Redis, Payload: c.Payload, Connections: c.Connections},
		nil)
	r.Limits = []*Limits{l}
	fmt.Fprintf(out, "%s, %d cores; stores: %s; %s\n\n", r.Hardware.CPU, r.Hardware.Cores, r.Stores,
		strings.Join(r.Durability, "; "))
	PrintLimits(out, l)
	return ExitOK, o.write(r)
}

// PrintLimits writes the table of stages.
func PrintLimits(out io.Writer, l *Limits) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "stage\toperations/s\tCPU us each\tworkers\tothers\toperation\tCPU of")
	for _, s := range l.Stages {
		var each []string
		for _, name := range slices.Sorted(maps.Keys(s.Micros)) {
			each = append(each, fmt.Sprintf("%s %.1f", name, s.Micros[name]))
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%d\t%.2f\t%s\t%s\n", s.Name, s.Rate, s.CPUMicros, s.Workers, s.Others, s.Unit,
			strings.Join(each, " + "))
	}
	w.Flush()
}
