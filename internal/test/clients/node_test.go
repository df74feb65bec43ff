package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

const (
	nodeClient = root + "/clients/node"
	nodePage   = "clients/node/README.md"
)

// nodeInstall runs the commands of the README of the Node client once, those that install it, in a
// folder that has a copy of the client, and returns that folder.
var nodeInstall = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(filepath.Dir(brokerProgram), "node")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	page, err := os.ReadFile(filepath.Join(root, nodePage))
	if err != nil {
		return "", err
	}
	commands := script.Blocks(string(page), "sh")
	if len(commands) != 1 {
		return "", fmt.Errorf("the README of the Node client has %d blocks of commands", len(commands))
	}
	if err := copyOf(nodeClient, filepath.Join(folder, "clients", "node")); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"private":true}`), 0o644); err != nil {
		return "", err
	}
	return folder, shell(folder, commands[0])
})

// nodeFolder is the folder of nodeInstall: the client is built in clients/node and installed beside it.
func nodeFolder(t *testing.T) string {
	t.Helper()
	folder, err := nodeInstall()
	require.NoError(t, err)
	return folder
}

func TestTheNodeClientPassesItsSuiteOnARealBroker(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(nodeFolder(t), "clients", "node")
	suites, err := filepath.Glob(filepath.Join(folder, "test", "*.test.mjs"))
	require.NoError(t, err)
	require.NotEmpty(t, suites)
	b := startBroker(t, "BROKER_ALLOW_DELETE=true")
	for _, suite := range suites {
		t.Run(filepath.Base(suite), func(t *testing.T) {
			out := command(t, folder, []string{"PENSTOCK_URL=" + b.url}, "node", "--test", suite)
			require.NotRegexp(t, `# (skipped|todo) [1-9]`, out)
		})
	}
}

// The package is installed alone from its tarball, and each of its entries loads in both ways.
func TestTheNodePackageLoadsInBothWaysAndBringsNothing(t *testing.T) {
	t.Parallel()
	folder := nodeFolder(t)
	installed, err := os.ReadDir(filepath.Join(folder, "node_modules"))
	require.NoError(t, err)
	for _, entry := range installed {
		if !strings.HasPrefix(entry.Name(), ".") {
			require.Equal(t, "penstock", entry.Name())
		}
	}
	for _, entry := range nodeEntries(t) {
		if entry == "penstock/nestjs" {
			continue // it is for programs that have Nest: its suite loads it
		}
		script := fmt.Sprintf("import * as a from %q; import { createRequire } from 'node:module';"+
			"const b = createRequire(process.cwd() + '/')(%q);"+
			"const names = (x) => Object.keys(x).filter((k) => k !== 'default' && k !== 'module.exports').sort().join();"+
			"if (!names(a) || names(a) !== names(b)) throw new Error(names(a) + ' / ' + names(b));", entry, entry)
		command(t, folder, nil, "node", "--input-type=module", "-e", script)
	}
}

// nodeEntries are the names under which the package is imported.
func nodeEntries(t *testing.T) []string {
	t.Helper()
	var pkg struct {
		Exports      map[string]any
		Dependencies map[string]string
	}
	data, err := os.ReadFile(filepath.Join(nodeClient, "package.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &pkg))
	require.Empty(t, pkg.Dependencies)
	var entries []string
	for name := range pkg.Exports {
		if name != "./package.json" {
			entries = append(entries, "penstock"+strings.TrimPrefix(name, "."))
		}
	}
	sort.Strings(entries)
	return entries
}

// A program in strict TypeScript compiles against the types of the installed package, as an ES module
// and as CommonJS.
func TestTheTypesOfTheNodePackageAreStrict(t *testing.T) {
	t.Parallel()
	from := nodeFolder(t)
	for _, kind := range []string{"module", "commonjs"} {
		folder := t.TempDir()
		require.NoError(t, os.Symlink(filepath.Join(from, "node_modules"), filepath.Join(folder, "node_modules")))
		program, err := os.ReadFile(filepath.Join(nodeClient, "test", "types.ts"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, "program.ts"), program, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"type":"`+kind+`"}`), 0o644))
		modules := filepath.Join(from, "clients/node/node_modules")
		command(t, folder, nil, "node", filepath.Join(modules, "typescript/bin/tsc"), "--strict", "--noEmit",
			"--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--module", "node16", "--target", "es2022",
			"--types", "node", "--typeRoots", filepath.Join(modules, "@types"), "program.ts")
	}
}

// Each program of the README prints what stands behind it.
func TestThePagesOfTheNodeClientAreTrue(t *testing.T) {
	t.Parallel()
	folder := nodeFolder(t)
	b := startBroker(t)
	programs := regexp.MustCompile("(?s)```js\n(.*?)```\n(?:\n```text\n(.*?)```)?").FindAllStringSubmatch(
		script.Page(t, nodePage), -1)
	require.NotEmpty(t, programs)
	for i, program := range programs {
		if program[2] == "" {
			continue // a part of a program
		}
		file := filepath.Join(folder, fmt.Sprintf("page-%d.mjs", i))
		require.NoError(t, os.WriteFile(file, []byte(program[1]), 0o644))
		require.Equal(t, program[2], command(t, folder, []string{"PENSTOCK_URL=" + b.url}, "node", file))
	}
}

func TestTheLockFileOfTheNodeClientNamesNoHost(t *testing.T) {
	t.Parallel()
	lock, err := os.ReadFile(filepath.Join(nodeClient, "package-lock.json"))
	require.NoError(t, err)
	require.NotContains(t, string(lock), `"resolved"`)
}

// copyOf copies a client without what was installed or built in its folder.
func copyOf(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir() && regexp.MustCompile(`^(node_modules|dist|\.build-.*)$`).MatchString(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// shell runs the commands of a page in a folder. The first one that fails ends it.
func shell(folder, commands string) error {
	cmd := exec.Command("bash", "-euc", commands)
	cmd.Dir, cmd.Env = folder, cleanEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s\n%s", err, commands, out)
	}
	return nil
}

func nodeDriver(t *testing.T) driver {
	return driver{"node", []string{"node", filepath.Join(nodeFolder(t), "clients", "node", "test", "driver.mjs")}}
}

func TestTheExampleBetweenLanguagesRunsInBothDirections(t *testing.T) {
	t.Parallel()
	modules := filepath.Join(nodeFolder(t), "node_modules")
	e := newExample(t, "between-languages", startBroker(t))
	from := e.folder
	e.folder = t.TempDir() // Node looks for packages beside the program
	require.NoError(t, copyOf(from, e.folder))
	require.NoError(t, os.Symlink(modules, filepath.Join(e.folder, "node_modules")))
	page, err := os.ReadFile(filepath.Join(from, "README.md"))
	require.NoError(t, err)
	e.start("node", "worker.mjs")
	out := command(t, e.folder, e.env, "/usr/bin/python3", "measure.py", "żółw", "tortoise")
	require.Contains(t, string(page), "```\n"+out+"```\n")
	e.start("/usr/bin/python3", "-m", "penstock", "worker", "-A", "tasks", "-Q", "greetings", "-c", "2")
	out = command(t, e.folder, e.env, "node", "greet.mjs", "Ann", "Bob")
	require.Contains(t, string(page), "```\n"+out+"```\n")
}
