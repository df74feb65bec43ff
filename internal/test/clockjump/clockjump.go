// Package clockjump builds programs whose wall clock jumps when a test requests it.
//
// A Go program reads the clock without the C library, so a preloaded library cannot change the
// time. Package clockjump therefore changes the standard library that the program is built with.
package clockjump

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Env names the file that a program built by Build reads its offset from.
const Env = "PENSTOCK_TEST_CLOCK"

//go:embed jump.go.txt
var jump []byte

// Where time.Now has read the system's clock.
const (
	reading = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n"
	jumping = "\tsec, nsec, mono := runtimeNow()\n\tsec += jumped.Load()\n\tif mono == 0 {\n"
)

// Build compiles the main package into dir and returns the program. It compiles
// the standard library with it, which takes minutes when Go's cache is cold.
func Build(dir, pkg string) (program string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("clockjump: go env GOROOT: %w", err)
	}
	lib := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(lib, "time.go"))
	if err != nil {
		return "", err
	}
	text, err := patch(string(source))
	if err != nil {
		return "", err
	}
	patched := filepath.Join(dir, "time.go")
	added := filepath.Join(dir, "jump.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(lib, "time.go"): patched,
		filepath.Join(lib, "jump.go"): added,
	}})
	if err != nil {
		return "", err
	}
	for path, content := range map[string][]byte{
		patched:                            []byte(text),
		added:                              jump,
		filepath.Join(dir, "overlay.json"): overlay,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return "", err
		}
	}
	program = filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("clockjump: build %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// patch adds the jump to the source of time.Now.
func patch(source string) (string, error) {
	if n := strings.Count(source, reading); n != 1 {
		return "", fmt.Errorf("clockjump: the standard library reads the clock in %d places that look like\n%s", n, reading)
	}
	return strings.Replace(source, reading, jumping, 1), nil
}

// Set makes the clocks of all programs that read the file jump to by from the
// system's clock, in whole seconds, within some ten milliseconds.
func Set(file string, by time.Duration) error {
	next := file + ".next"
	if err := os.WriteFile(next, []byte(strconv.Itoa(int(by/time.Second))), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
