//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// janitorScript reads process IDs, one a line, an empty line meaning "none",
// until the pipe closes. Then it kills the last one and removes the folder. The
// wait lets a dying server write its last file before the folder goes; it is
// bounded because a process without a parent that reaps it never disappears.
const janitorScript = `
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
	kill -9 "$pid" 2>/dev/null
	tries=0
	while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 40 ]; do tries=$((tries+1)); sleep 0.05; done
fi
rm -rf "$1"
`

// A folder is a temporary directory, and at most one server process working
// in it, that vanish with this process.
type folder struct {
	path    string
	pipe    *os.File // its closing, by us or by our death, wakes the janitor
	janitor *exec.Cmd
}

// newFolder makes the directory and starts its janitor. The path is short and
// not the test's own TempDir: a Unix socket's path must fit 100 bytes.
func newFolder() (*folder, error) { return newFolderIn("") }

// newFolderIn is newFolder in the directory parent, "" being that of temporary files.
func newFolderIn(parent string) (*folder, error) {
	path, err := os.MkdirTemp(parent, "penstock-")
	if err != nil {
		return nil, fmt.Errorf("servers: make a temporary folder: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	defer r.Close() //nolint:errcheck // our copy of the janitor's end
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "janitor", path)
	cmd.Stdin = r
	// Out of our process group: the interrupt that a terminal or a supervisor
	// sends to all of it must not take the janitor along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("servers: start the janitor: %w", err), w.Close(), os.RemoveAll(path))
	}
	return &folder{path: path, pipe: w, janitor: cmd}, nil
}

// forget tells the janitor that the server has ended, so that its number,
// which the system may give to another process, is not killed later.
func (f *folder) forget() { _, _ = f.pipe.WriteString("\n") }

// remove has the janitor clean up and waits for it.
func (f *folder) remove() error {
	if err := f.pipe.Close(); err != nil {
		return err
	}
	return f.janitor.Wait()
}
