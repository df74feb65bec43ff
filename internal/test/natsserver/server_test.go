package natsserver

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// configOf is the environment variable with the configuration file, for the process that is the server.
const configOf = "PENSTOCK_TEST_NATS_CONFIG"

// TestMain is the server where the environment names its configuration: a test can kill and stop a process of its
// own.
func TestMain(m *testing.M) {
	file := os.Getenv(configOf)
	if file == "" {
		os.Exit(m.Run())
	}
	if err := serve(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(file string) error {
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return fmt.Errorf("the server does not take connections")
	}
	fmt.Println("ready")
	s.WaitForShutdown()
	return nil
}

// A natsServer is a process with a server on loopback.
type natsServer struct {
	t      testing.TB
	addr   string
	config string
	cmd    *exec.Cmd
}

// startServer starts a server with JetStream and those lines of configuration.
func startServer(t testing.TB, lines ...string) *natsServer {
	t.Helper()
	folder := t.TempDir()
	s := &natsServer{t: t, addr: freeAddress(t), config: filepath.Join(folder, "nats.conf")}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, max_mem: 64MB, max_file: 256MB }\nlog_file: %q\n%s\n",
		s.addr, filepath.Join(folder, "store"), filepath.Join(folder, "log"), strings.Join(lines, "\n"))
	require.NoError(t, os.WriteFile(s.config, []byte(text), 0o600))
	s.start()
	t.Cleanup(s.kill)
	return s
}

// freeAddress is an address below the ports of outgoing connections: one that is free now stays free while the server
// is away.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err == nil {
			require.NoError(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

func (s *natsServer) start() {
	s.t.Helper()
	self, err := os.Executable()
	require.NoError(s.t, err)
	s.cmd = exec.Command(self)
	s.cmd.Env = append(os.Environ(), configOf+"="+s.config)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s.t, err, "the server has ended")
	require.Equal(s.t, "ready\n", line)
}

// kill ends the server without a word. It may be called again.
func (s *natsServer) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// url is a callback URL of a subject.
func (s *natsServer) url(subject string) string { return "nats://" + s.addr + "/" + subject }

// connect is a connection of the client of the NATS authors, which sees what is in the streams.
func (s *natsServer) connect(options ...natsgo.Option) natsgo.JetStreamContext {
	s.t.Helper()
	nc, err := natsgo.Connect("nats://"+s.addr, options...)
	require.NoError(s.t, err)
	s.t.Cleanup(nc.Close)
	js, err := nc.JetStream(natsgo.MaxWait(time.Minute))
	require.NoError(s.t, err)
	return js
}

// stream makes a stream of subjects.
func stream(t *testing.T, js natsgo.JetStreamContext, c natsgo.StreamConfig) {
	t.Helper()
	_, err := js.AddStream(&c)
	require.NoError(t, err)
}

// stored returns the messages of a stream in order.
func stored(t *testing.T, js natsgo.JetStreamContext, name string) (all []*natsgo.RawStreamMsg) {
	t.Helper()
	info, err := js.StreamInfo(name)
	require.NoError(t, err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := js.GetMsg(name, seq)
		require.NoError(t, err)
		all = append(all, m)
	}
	return all
}
