//go:build unix

package servers

import (
	"errors"
	"os"
	"syscall"
)

// A MySQLNode is one MariaDB or MySQL of the caller's own: StartMySQL without a
// test around it. Close removes it; when the process ends without that the
// janitor does. Its methods may be called concurrently, Restart and Close only by
// one caller.
type MySQLNode struct{ process *process }

// StartMySQLNode starts an empty server, as StartMySQL does.
func StartMySQLNode() (*MySQLNode, error) {
	p, err := startMySQLIn(os.Getenv(EnvDisk), nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return &MySQLNode{p}, nil
}

// RootDSN is the go-sql-driver DSN of its administrator, without a database.
func (n *MySQLNode) RootDSN() string { return rootDSN(n.process.port) }

// Port is where the server listens on 127.0.0.1, before and after a restart.
func (n *MySQLNode) Port() int { return n.process.port }

// Kill ends the server with SIGKILL: what it flushed is all that is left.
func (n *MySQLNode) Kill() error { return n.process.kill() }

// Pause freezes the server: connections stay open, nothing answers.
func (n *MySQLNode) Pause() error { return n.process.pause() }

// Resume lets a paused server go on.
func (n *MySQLNode) Resume() error { return n.process.signal(syscall.SIGCONT) }

// Restart starts the server on its old port and data, after a clean stop if it
// is still running, and returns when it answers.
func (n *MySQLNode) Restart() error { return errors.Join(n.process.stop(), n.process.start()) }

// Close kills the server and removes its data.
func (n *MySQLNode) Close() error { return n.process.remove() }
