//go:build linux

package realservers

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A ClockedRedisServer is a RedisServer whose wall clock the test sets.
type ClockedRedisServer struct {
	*RedisServer
	file string // its offset, see wallclock.c
}

//go:embed wallclock/wallclock.c
var wallclock []byte

// StartRedisClocked is StartRedis with a clock that begins right. It needs a C
// compiler. (libfaketime cannot be loaded into a Redis that uses jemalloc: each
// waits for the other to be initialised.)
func StartRedisClocked(tb TB, extraArgs ...string) *ClockedRedisServer {
	tb.Helper()
	g := redisProgram(func(port int) []string { return []string{"--port", strconv.Itoa(port)} }, extraArgs)
	g.env = []string{"LD_PRELOAD=./wallclock.so", "PENSTOCK_TEST_WALLCLOCK=./wallclock"}
	p, err := startRedisProgram(g, buildWallclock)
	if err != nil {
		tb.Fatal(err)
	}
	n := &RedisNode{p}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Errorf("remove the Redis server: %v", err)
		}
	})
	return &ClockedRedisServer{&RedisServer{tb: tb, node: n}, filepath.Join(p.folder.path, "wallclock")}
}

// Jump sets the clock to by from that of this machine, in whole seconds, at once.
func (s *ClockedRedisServer) Jump(by time.Duration) { report(s.tb, setWallclock(s.file, by)) }

// setWallclock writes in place: the server has the file mapped.
func setWallclock(file string, by time.Duration) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(by/time.Second)))
	return errors.Join(err, f.Close())
}

// buildWallclock puts what a server of dir loads into dir.
func buildWallclock(dir string) error {
	source := filepath.Join(dir, "wallclock.c")
	if err := os.WriteFile(source, wallclock, 0o600); err != nil {
		return err
	}
	cc, err := findBinary("cc", "gcc", "clang")
	if err != nil {
		return err
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", filepath.Join(dir, "wallclock.so"), source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("realservers: %s: %w\n%s", cc, err, out)
	}
	return setWallclock(filepath.Join(dir, "wallclock"), 0)
}
