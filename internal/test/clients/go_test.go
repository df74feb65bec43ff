package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

const (
	goClient = root + "/clients/go"
	goPage   = "clients/go/README.md"
)

func TestTheGoClientPassesItsSuiteOnARealBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	command(t, goClient, nil, "go", "vet", "./...")
	out := command(t, goClient, []string{"PENSTOCK_TEST_URL=" + b.url}, "go", "test", "-count=1", "-v", "./...")
	require.NotContains(t, out, "--- SKIP")
	require.Equal(t, []string{"go test ./...\n"}, script.Blocks(script.Page(t, goPage), "sh")[1:], "the page says so")
}

func TestTheGoClientNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	require.Equal(t, "github.com/penstock-broker/penstock/clients/go\n", command(t, goClient, []string{"GOWORK=off"}, "go",
		"list", "-m", "all"))
}

// Each program of the page is put into a module of its own, which gets the client as the page says. The module knows
// the path of the client.
func TestTheProgramsOfTheGoClientsPageRun(t *testing.T) {
	t.Parallel()
	page := script.Page(t, goPage)
	programs := script.Blocks(page, "go")
	want := []string{"welcome, ann@example.org", "shipping order 7"}
	require.Len(t, programs, len(want))
	path, err := filepath.Abs(goClient)
	require.NoError(t, err)
	b := startBroker(t)
	const module = "github.com/penstock-broker/penstock/clients/go"
	for i, program := range programs {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o644))
		command(t, folder, nil, "go", "mod", "init", "example.org/first")
		command(t, folder, nil, "go", "mod", "edit", "-replace="+module+"="+path)
		script.Run{Folder: folder, Env: append(cleanEnv(), "GOPROXY=off"), Within: patience}.Text(t,
			script.Blocks(page, "sh")[0])
		out := command(t, folder, []string{"PENSTOCK_URL=" + b.url}, "go", "run", ".")
		require.Equal(t, want[i], strings.TrimSpace(out))
		require.Contains(t, page, "`"+want[i]+"`", "the page says what is printed")
	}
}
