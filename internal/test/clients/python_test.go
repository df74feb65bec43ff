package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

const pythonClient = root + "/clients/python"

// python is the interpreter of the system, which has the frameworks that Debian has.
func python() string {
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

func pythonDriver(*testing.T) driver {
	return driver{client: "python", program: []string{python(), "clients/python/tests/driver.py"}}
}

// pythonSuite runs modules of the suite of the Python client against a broker of its own.
func pythonSuite(t *testing.T, interpreter string, modules ...string) {
	t.Helper()
	b := startBroker(t)
	args := append([]string{"-m", "unittest", "-v"}, modules...)
	command(t, pythonClient, []string{"PENSTOCK_URL=" + b.url, "PYTHONDONTWRITEBYTECODE=1"}, interpreter, args...)
}

// oldestPython is an interpreter of the oldest Python that the client supports, from PATH or from pyenv, or "". One
// in PATH may be a shim of pyenv that runs nothing.
func oldestPython() string {
	if found, err := exec.LookPath("python3.9"); err == nil && exec.Command(found, "--version").Run() == nil {
		return found
	}
	pyenv := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); pyenv == "" && err == nil {
		pyenv = filepath.Join(home, ".pyenv")
	}
	found, _ := filepath.Glob(filepath.Join(pyenv, "versions", "3.9.*", "bin", "python3.9"))
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// The client needs Python 3.9 and nothing else. Without one on the machine only the types are checked for it, by
// TestTheTypesOfThePythonClientAreStrict.
func TestThePythonClientPassesItsSuiteOnTheOldestPython(t *testing.T) {
	t.Parallel()
	if oldest := oldestPython(); oldest != "" {
		pythonSuite(t, oldest, "tests.test_client", "tests.test_app", "tests.test_testing", "tests.test_worker")
	}
}

func TestTheLowLevelClientOfPythonPassesItsSuite(t *testing.T) {
	t.Parallel()
	pythonSuite(t, python(), "tests.test_client", "tests.test_app", "tests.test_testing",
		"tests.test_django_tasks")
}

func TestPushEndpointsOfPythonAreVerifiedInTheirFrameworks(t *testing.T) {
	t.Parallel()
	pythonSuite(t, python(), "tests.test_push")
}

func TestThePageOfThePythonClientIsTrueAndCelerysFirstProgramsRun(t *testing.T) {
	t.Parallel()
	pythonSuite(t, python(), "tests.test_pages")
}

func TestWorkersOfPythonPassTheirSuite(t *testing.T) {
	t.Parallel()
	pythonSuite(t, python(), "tests.test_worker")
}

func TestTheTypesOfThePythonClientAreStrict(t *testing.T) {
	t.Parallel()
	command(t, pythonClient, nil, "mypy", "--cache-dir", t.TempDir())
}

// The package installs into an empty environment, without a network, setuptools or wheel.
func TestThePythonPackageInstallsIntoACleanPlace(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs(pythonClient)
	require.NoError(t, err)
	venv, elsewhere := filepath.Join(t.TempDir(), "venv"), t.TempDir()
	command(t, elsewhere, nil, python(), "-m", "venv", venv)
	pip := func(args ...string) {
		command(t, elsewhere, nil, filepath.Join(venv, "bin/python"), append([]string{"-m", "pip", "-q"}, args...)...)
	}
	// As the page says, whose other command is that of a worker: tests/test_pages.py runs it.
	blocks := script.Blocks(script.Page(t, "clients/python/README.md"), "sh")
	require.Len(t, blocks, 2)
	script.Run{Folder: root, Env: append(cleanEnv(), "PATH="+filepath.Join(venv, "bin")+":"+os.Getenv("PATH")),
		Within: patience}.Text(t, blocks[0])
	require.Contains(t, command(t, elsewhere, nil, filepath.Join(venv, "bin/penstock"), "--version"), "penstock ")
	command(t, elsewhere, nil, filepath.Join(venv, "bin/python"), "-c",
		"import os, penstock; assert os.path.exists(os.path.join(os.path.dirname(penstock.__file__), 'py.typed'))")

	// The sdist has all that is needed for the wheel.
	sdists := t.TempDir()
	command(t, folder, nil, filepath.Join(venv, "bin/python"), "-c",
		"import sys; sys.path.insert(0, 'build_backend'); import penstock_build as b; b.build_sdist(sys.argv[1])", sdists)
	found, err := filepath.Glob(filepath.Join(sdists, "penstock-*.tar.gz"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	pip("uninstall", "-y", "penstock")
	pip("install", "--no-index", "--no-deps", "--no-build-isolation", found[0])
	require.Contains(t, command(t, elsewhere, nil, filepath.Join(venv, "bin/penstock"), "--version"), "penstock ")
}
