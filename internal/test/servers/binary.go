//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// sbin are folders of servers that are often missing from the PATH of an ordinary user.
var sbin = []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin", "/usr/local/mysql/bin"}

// errNone is returned where servers are not wanted.
var errNone = errors.New("servers: this run is without real servers; the name of a test that needs one contains " +
	"MySQL, Redis or Real")

// wanted returns errNone in a run without servers.
func wanted() error {
	if os.Getenv(EnvServers) == "none" {
		return errNone
	}
	return nil
}

// findBinary returns the path of the first name that exists, in PATH or sbin.
func findBinary(names ...string) (string, error) {
	if err := wanted(); err != nil {
		return "", err
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		for _, dir := range sbin {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("servers: %s is not installed; `make test` installs it", names[0])
}
