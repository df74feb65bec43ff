//go:build unix

package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// sbin are folders of servers that are often missing from the PATH of an ordinary user.
var sbin = []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin", "/usr/local/mysql/bin"}

// findBinary returns the path of the first name that exists, in PATH or sbin.
func findBinary(names ...string) (string, error) {
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
