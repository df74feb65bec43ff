//go:build unix

package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// A MySQLServer is a MariaDB or MySQL of one test's own. It flushes at each
// commit, as production does. Its methods may be called concurrently; those
// that start it or create something must be called from the test's goroutine.
type MySQLServer struct {
	tb      TB
	process *process
}

// StartMySQL starts an empty server that lives until the test ends. extraArgs
// are further options of the server; they override the defaults. A missing
// program fails the test.
func StartMySQL(tb TB, extraArgs ...string) *MySQLServer {
	tb.Helper()
	return startMySQLServer(tb, extraArgs, nil, nil)
}

// startMySQLServer starts a server in a folder that prepare, if any, has seen.
func startMySQLServer(tb TB, extraArgs []string, prepare func(dir string) error, env []string) *MySQLServer {
	tb.Helper()
	p, err := startMySQLIn(os.Getenv(EnvDisk), extraArgs, prepare, env)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.remove(); err != nil {
			tb.Errorf("remove the MySQL server: %v", err)
		}
	})
	return &MySQLServer{tb: tb, process: p}
}

// DSN creates an empty database and returns its go-sql-driver DSN. Each call
// makes another one; the server must be running.
func (s *MySQLServer) DSN() string {
	s.tb.Helper()
	dsn, _, err := createDatabase(rootDSN(s.process.port))
	if err != nil {
		s.tb.Fatal(err)
	}
	return dsn
}

// UserDSN is like DSN, for a user who owns the database and nothing else: read_only
// and the limit of connections hold for it, from which root is exempt.
func (s *MySQLServer) UserDSN(user string) string {
	s.tb.Helper()
	dsn, err := createUser(s.DSN(), user)
	if err != nil {
		s.tb.Fatal(err)
	}
	return dsn
}

// RootDSN is the DSN of the administrator, without a database.
func (s *MySQLServer) RootDSN() string { return rootDSN(s.process.port) }

// Port is where the server listens on 127.0.0.1, before and after a restart.
func (s *MySQLServer) Port() int { return s.process.port }

// Kill ends the server with SIGKILL: what it flushed is all that is left.
func (s *MySQLServer) Kill() { report(s.tb, s.process.kill()) }

// Stop shuts the server down cleanly.
func (s *MySQLServer) Stop() { report(s.tb, s.process.stop()) }

// Pause freezes the server: connections stay open, nothing answers.
func (s *MySQLServer) Pause() { report(s.tb, s.process.pause()) }

// Resume lets a paused server go on.
func (s *MySQLServer) Resume() { report(s.tb, s.process.signal(syscall.SIGCONT)) }

// Restart starts the server on its old port and data, after a clean stop if it
// is still running, and returns when it answers.
func (s *MySQLServer) Restart() {
	s.tb.Helper()
	if err := s.process.stop(); err != nil {
		s.tb.Fatal(err)
	}
	if err := s.process.start(); err != nil {
		s.tb.Fatal(err)
	}
}

// RestartWith is Restart with further options, which override those before: what
// an operator does who changes the configuration.
func (s *MySQLServer) RestartWith(extraArgs ...string) {
	s.tb.Helper()
	args := s.process.args
	s.process.args = func(port int) []string { return append(args(port), extraArgs...) }
	s.Restart()
}

// report fails the test without ending it: faults are often injected from
// another goroutine, where Fatal is not allowed.
func report(tb TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

func rootDSN(port int) string {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", "tcp", "127.0.0.1:"+strconv.Itoa(port)
	return cfg.FormatDSN()
}

// startMySQL starts a shared server, which no test kills or slows down.
func startMySQL() (*process, error) { return startMySQLIn("", nil, nil, nil) }

func startMySQLIn(parent string, extraArgs []string, prepare func(dir string) error, env []string) (*process, error) {
	binary, err := findBinary("mariadbd", "mysqld")
	if err != nil {
		return nil, err
	}
	template, err := mysqlTemplate()
	if err != nil {
		return nil, err
	}
	f, err := newFolderIn(parent)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(f.path, "data")
	if err := os.CopyFS(data, os.DirFS(template)); err != nil {
		_ = f.remove()
		return nil, fmt.Errorf("servers: copy the initialised data folder: %w", err)
	}
	if prepare != nil {
		if err := prepare(f.path); err != nil {
			return nil, errors.Join(err, f.remove())
		}
	}
	args := func(port int) []string {
		first := mysqlArgs(data)
		if slices.ContainsFunc(extraArgs, func(arg string) bool { return strings.HasPrefix(arg, "--user=") }) {
			first = slices.DeleteFunc(first, func(arg string) bool { return arg == "--user=root" }) // the first counts
		}
		return slices.Concat(first, []string{
			"--port=" + strconv.Itoa(port),
			"--bind-address=127.0.0.1",
			"--socket=mysql.sock", // relative to the data folder, so never too long
			"--pid-file=mysql.pid",
			"--max-connections=500",
			"--character-set-server=utf8mb4",
			"--innodb-buffer-pool-size=256M",
			"--loose-innodb-log-file-size=128M",     // MariaDB, MySQL before 8.0.30
			"--loose-innodb-redo-log-capacity=128M", // MySQL since
			"--innodb-flush-log-at-trx-commit=1",
			"--sync-binlog=1",
			"--performance-schema=OFF",
			"--loose-mysqlx=OFF",
		}, extraArgs)
	}
	return startProcess(f, program{
		binary: binary,
		args:   args,
		env:    env,
		ready:  "ready for connections",
		ping:   func(port int) error { return pingMySQL(rootDSN(port)) },
	})
}

// mysqlArgs are the options that initialisation and operation share.
// --no-defaults comes first, or the servers refuse it. A starting server removes
// temporary tables, those of the others in a shared folder too.
func mysqlArgs(data string) []string {
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + filepath.Dir(data)}
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // they decline to run as root unless told
	}
	return args
}

// mysqlTemplate initialises a data folder once per process; servers start
// from copies of it.
var mysqlTemplate = sync.OnceValues(func() (string, error) {
	f, err := newFolder() // never removed by us: the janitor does at process end
	if err != nil {
		return "", err
	}
	templateFolder = f
	data := filepath.Join(f.path, "data")
	cmd, err := initialiser(data)
	if err != nil {
		return "", err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("servers: %s: %w\n%s", cmd.Path, err, tail(out))
	}
	for _, name := range []string{"auto.cnf", "mysql.sock"} { // the identity of one server; not a file
		_ = os.Remove(filepath.Join(data, name))
	}
	return data, nil
})

// templateFolder keeps the pipe to the template's janitor reachable: collected
// as garbage it would close and the template vanish.
var templateFolder *folder

// initialiser returns the command that makes an empty data folder whose root
// needs no password.
func initialiser(data string) (*exec.Cmd, error) {
	binary, err := findBinary("mariadbd", "mysqld")
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(binary, "--no-defaults", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("servers: %s --version: %w", binary, err)
	}
	if !bytes.Contains(version, []byte("MariaDB")) {
		return exec.Command(binary, append(mysqlArgs(data), "--initialize-insecure")...), nil
	}
	install, err := findBinary("mariadb-install-db", "mysql_install_db")
	if err != nil {
		return nil, err
	}
	return exec.Command(install, append(mysqlArgs(data),
		"--auth-root-authentication-method=normal",
		"--skip-test-db",
		"--innodb-log-file-size=8M", // quick to copy; the server enlarges it
	)...), nil
}
