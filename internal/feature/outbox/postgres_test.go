package outbox

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nobody runs the server where the tests run as root, who may not.
const nobody = 65534

// programs returns the folder with the programs of PostgreSQL: an installation of Debian, or bin/postgresql,
// where scripts/toolchains.sh unpacks them. own: it is a part of the checkout.
func programs(t *testing.T) (folder string, own bool) {
	t.Helper()
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), false
	}
	if found, _ := filepath.Glob("../../../bin/postgresql/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		path, err := filepath.Abs(found[len(found)-1])
		require.NoError(t, err)
		return filepath.Dir(path), true
	}
	if found, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(found), false
	}
	t.Fatal("PostgreSQL is missing: scripts/toolchains.sh unpacks it")
	return "", false
}

// shared is the server of all tests of the package; it ends with the process.
var shared struct {
	sync.Mutex
	port int
	next int
}

// postgres returns the DSN of an empty database on a PostgreSQL of the tests.
func postgres(t *testing.T) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.port == 0 {
		shared.port = startPostgres(t)
	}
	shared.next++
	name := fmt.Sprintf("shop%d", shared.next)
	dsn := func(db string) string {
		return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", shared.port, db)
	}
	admin, err := sql.Open("postgres", dsn("postgres"))
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	var last error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, last = admin.ExecContext(t.Context(), "CREATE DATABASE "+name); last == nil {
			return dsn(name)
		}
	}
	t.Fatalf("PostgreSQL does not answer: %v", last)
	return ""
}

func startPostgres(t *testing.T) (port int) {
	t.Helper()
	place := ""
	if os.Getuid() == 0 {
		place = "/tmp" // the folder of the tests may be root's alone
	}
	folder, err := os.MkdirTemp(place, "penstock-postgres-")
	require.NoError(t, err)
	stopped = append(stopped, func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	bin, own := programs(t)
	attributes := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(folder, nobody, nobody))
		attributes.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if own && os.Getuid() == 0 {
		// The server runs as somebody else, who may not be able to enter the folder of the checkout.
		tree := filepath.Join(folder, "tree")
		out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(bin, "../../../.."), tree).CombinedOutput()
		require.NoError(t, err, string(out))
		bin = filepath.Join(tree, "lib/postgresql", filepath.Base(filepath.Dir(bin)), "bin")
	}
	data := filepath.Join(folder, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = folder, attributes
		cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+folder)
		return cmd
	}
	out, err := run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput()
	require.NoError(t, err, string(out))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	server := run("postgres", "-D", data, "-h", "127.0.0.1", "-p", fmt.Sprint(port), "-k", "", "-F")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	require.NoError(t, server.Start())
	stopped = append(stopped, func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
	})
	return port
}

// stopped is what ends with the process, the last first.
var stopped []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(stopped) - 1; i >= 0; i-- {
		stopped[i]()
	}
	os.Exit(code)
}
