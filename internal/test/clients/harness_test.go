package clients

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is the folder of the repository.
const root = "../../.."

// patience is how long a test waits for what must happen at some time.
const patience = 5 * time.Minute

// brokerProgram is the program broker, built once.
var brokerProgram string

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait for programs most of their time
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "penstock-clients-")
	if err == nil {
		brokerProgram = filepath.Join(folder, "broker")
		build := exec.Command("go", "build", "-o", brokerProgram, "./cmd/broker")
		build.Dir, build.Stdout, build.Stderr = root, os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clients: the broker cannot be built:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	return m.Run()
}

// A broker is a running broker on the embedded stores.
type broker struct {
	t    *testing.T
	url  string // http://127.0.0.1:port
	data string // its folder
	cmd  *exec.Cmd
	done chan struct{}
	log  *text
}

// startBroker runs a broker with open management on an empty folder until the test ends, and waits until it is ready.
func startBroker(t *testing.T, env ...string) *broker {
	t.Helper()
	return startBrokerOn(t, t.TempDir(), env...)
}

// startBrokerOn is startBroker on a folder that a broker may have used before.
func startBrokerOn(t *testing.T, data string, env ...string) *broker {
	t.Helper()
	return startBrokerAt(t, freeAddr(t), data, env...)
}

// startBrokerAgain starts a broker that has ended again, at its address and on its folder.
func startBrokerAgain(t *testing.T, ended *broker) *broker {
	t.Helper()
	return startBrokerAt(t, strings.TrimPrefix(ended.url, "http://"), ended.data)
}

func startBrokerAt(t *testing.T, addr, data string, env ...string) *broker {
	t.Helper()
	b := &broker{t: t, url: "http://" + addr, data: data, done: make(chan struct{}), log: &text{}}
	b.cmd = exec.Command(brokerProgram, "serve")
	b.cmd.Env = append(cleanEnv(), "BROKER_LISTEN="+addr, "BROKER_DATA_DIR="+data, "BROKER_OPEN_MANAGEMENT=true")
	b.cmd.Env = append(b.cmd.Env, env...)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	require.NoError(t, b.cmd.Start())
	go func() { _ = b.cmd.Wait(); close(b.done) }()
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("log of the broker:\n%s", b.log)
		}
	})
	deadline := time.Now().Add(patience)
	for !b.ready() {
		select {
		case <-b.done:
			t.Fatalf("the broker ended at start:\n%s", b.log)
		case <-time.After(20 * time.Millisecond):
		}
		require.True(t, time.Now().Before(deadline), "the broker is not ready")
	}
	return b
}

func (b *broker) ready() bool {
	res, err := http.Get(b.url + "/readyz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// kill ends the broker as a power loss would.
func (b *broker) kill() {
	_ = b.cmd.Process.Kill()
	<-b.done
}

// stop asks the broker to stop, and waits for its end.
func (b *broker) stop() {
	b.t.Helper()
	require.NoError(b.t, b.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-b.done:
	case <-time.After(patience):
		b.t.Fatal("the broker did not end")
	}
}

// command runs a program in a folder with settings NAME=VALUE, and returns what it printed. The test
// fails if the program does, or has not ended a minute before all tests must.
func command(t *testing.T, folder string, env []string, program string, args ...string) string {
	t.Helper()
	ctx := t.Context()
	if end, bounded := t.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Minute))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = folder, append(cleanEnv(), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(t, cmd.Run(), "%s %s\n%s\n%s", program, strings.Join(args, " "), &out, &said)
	return out.String()
}

// cleanEnv is our environment without settings of a broker or of a client.
func cleanEnv() []string {
	var out []string
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "BROKER_") && !strings.HasPrefix(line, "PENSTOCK_") {
			out = append(out, line)
		}
	}
	return out
}

// freeAddr is a free address on loopback, below the ports that systems give to outgoing connections: one of those
// would take it while its broker is dead.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		return l.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// A text is a log that several goroutines write and read.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// A broker that a client's suite uses keeps what it accepted over a restart.
func TestABrokerForClientsIsReady(t *testing.T) {
	b := startBroker(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url+"/channel/orders",
		strings.NewReader("token=t"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Less(t, res.StatusCode, 300)
	b.stop()
	b = startBrokerOn(t, b.data)
	res, err = http.Get(b.url + "/channel/orders")
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
}
