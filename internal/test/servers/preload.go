//go:build linux

package servers

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A preload is a library that a server loads before its C library. It changes the results of system
// calls according to a number in a mapped file. It needs a C compiler.
type preload struct {
	name   string
	source []byte
}

var (
	//go:embed preload/number.h
	numberSource []byte
	//go:embed preload/wallclock.c
	wallclockSource []byte
	//go:embed preload/slowdisk.c
	slowdiskSource []byte

	wallclock = preload{"wallclock", wallclockSource} // seconds off
	slowdisk  = preload{"slowdisk", slowdiskSource}   // milliseconds for each flush
)

// env returns the environment with which a server loads the library from its folder, where it
// starts.
func (l preload) env() []string {
	return []string{"LD_PRELOAD=./" + l.name + ".so", "PENSTOCK_TEST_NUMBER=./" + l.name}
}

// build puts it into the folder of a server, with the number 0.
func (l preload) build(dir string) error {
	source := filepath.Join(dir, l.name+".c")
	for path, text := range map[string][]byte{source: l.source, filepath.Join(dir, "number.h"): numberSource} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	cc, err := findBinary("cc", "gcc", "clang")
	if err != nil {
		return err
	}
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-pthread", "-o", filepath.Join(dir, l.name+".so"),
		source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("servers: %s: %w\n%s", cc, err, out)
	}
	return l.set(dir, 0)
}

// set changes the number, in place.
func (l preload) set(dir string, n int64) error {
	f, err := os.OpenFile(filepath.Join(dir, l.name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(n)))
	return errors.Join(err, f.Close())
}
