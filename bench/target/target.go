// Package target finds the broker that the harness loads.
package target

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// Broker returns the program to start as a broker: the named one if any, otherwise the program
// broker in the folder of this program, otherwise the one in PATH.
func Broker(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "broker")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if found, err := exec.LookPath("broker"); err == nil {
		return found, nil
	}
	return "", errors.New("there is no program broker beside bench or in PATH: make build makes both")
}
