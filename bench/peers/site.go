package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// A site is the folder in which servers run, and the programs that are there.
type site struct {
	folder   string
	programs map[string]string // paths, by the name of the flag
	runs     int
}

// programFlags are the programs that may be named by a flag.
var programFlags = map[string]string{
	"rabbitmq-server":    "`path` of RabbitMQ's own start script (not the wrapper that becomes another user)",
	"epmd":               "`path` of Erlang's port mapper",
	"nats-server":        "`path` of a NATS server that knows sync_interval: always (2.10 or later)",
	"redis-server":       "`path`",
	"mariadbd":           "`path`",
	"mariadb-install-db": "`path`",
}

// places are folders of programs outside of PATH. They come first, because Debian has a wrapper of
// rabbitmq-server in PATH that drops the environment.
var places = map[string][]string{
	"rabbitmq-server": {"/usr/lib/rabbitmq/bin/rabbitmq-server"},
	"mariadbd":        {"/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd"},
}

// leastFree is more than the space that the data of one run needs.
const leastFree = 6 << 30

// File systems in memory, from linux/magic.h.
const (
	tmpfsMagic = 0x01021994
	ramfsMagic = 0x858458f6
)

// newSite creates the folder and checks that a flush there reaches a disk.
func newSite(parent string) (*site, error) {
	folder, err := os.MkdirTemp(parent, "penstock-peers-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	s := &site{folder: folder, programs: map[string]string{}}
	var fs syscall.Statfs_t
	switch err := syscall.Statfs(folder, &fs); {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("look at the file system of %s: %w", folder, err), s.remove())
	case uint32(fs.Type) == tmpfsMagic || uint32(fs.Type) == ramfsMagic:
		return nil, errors.Join(fmt.Errorf("%s is in memory, where a flush costs nothing: name a folder on a disk with -dir", folder), s.remove())
	case fs.Bavail*uint64(fs.Bsize) < leastFree:
		return nil, errors.Join(fmt.Errorf("%s has less than %d GiB free", folder, leastFree>>30), s.remove())
	}
	return s, nil
}

// find looks for every program the subjects need.
func (s *site) find(o *options) error {
	var errs []error
	for _, subject := range o.subjects {
		for _, name := range subject.programs {
			if s.programs[name] != "" {
				continue
			}
			path, err := locate(name, o.programs[name])
			if err != nil {
				errs = append(errs, fmt.Errorf("%s needs %s: install it, name it with -%s, or leave the subject out of -subjects", subject.name, name, name))
				continue
			}
			s.programs[name] = path
		}
		if subject.open == nil {
			if _, err := os.Stat(o.broker); err != nil {
				errs = append(errs, fmt.Errorf("the broker's program: %w: build it, or name it with -broker", err))
			}
		}
	}
	return errors.Join(errs...)
}

func locate(name, given string) (string, error) {
	candidates := append(places[name], name)
	if given != "" {
		candidates = []string{given}
	}
	var err error
	for _, c := range candidates {
		var path string
		if path, err = exec.LookPath(c); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", err
}

// run creates an empty folder for one run.
func (s *site) run() (string, error) {
	s.runs++
	folder := filepath.Join(s.folder, strconv.Itoa(s.runs))
	return folder, os.Mkdir(folder, 0o700)
}

// flushPages writes dirty pages to disk, so that they do not disturb the next run. Pages of removed
// files are dropped.
func (s *site) flushPages() { syscall.Sync() }

func (s *site) remove() error { return os.RemoveAll(s.folder) }

// freePort returns a port on loopback that no program listens on, below those the
// system gives to outgoing connections (32768 and up).
func freePort() (int, error) {
	for range 100 {
		port := 15000 + rand.IntN(17000)
		ln, err := net.Listen("tcp", loopback(port))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, errors.New("found no free port between 15000 and 32000")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
