package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goClient = root + "/clients/go"

func TestTheGoClientPassesItsSuiteOnARealBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	command(t, goClient, nil, "go", "vet", "./...")
	out := command(t, goClient, []string{"PENSTOCK_TEST_URL=" + b.url}, "go", "test", "-count=1", "-v", "./...")
	require.NotContains(t, out, "--- SKIP")
}

func TestTheGoClientNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	require.Equal(t, "github.com/penstock-broker/penstock/clients/go\n", command(t, goClient, []string{"GOWORK=off"}, "go",
		"list", "-m", "all"))
}

// Each program of the page is put into a module of its own, which knows the client by its path.
func TestTheProgramsOfTheGoClientsPageRun(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(goClient, "README.md"))
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllStringSubmatch(string(page), -1)
	want := []string{"welcome, ann@example.org", "shipping order 7"}
	require.Len(t, programs, len(want))
	path, err := filepath.Abs(goClient)
	require.NoError(t, err)
	b := startBroker(t)
	const module = "github.com/penstock-broker/penstock/clients/go"
	for i, program := range programs {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(program[1]), 0o644))
		command(t, folder, nil, "go", "mod", "init", "example.org/first")
		command(t, folder, nil, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+path)
		out := command(t, folder, []string{"PENSTOCK_URL=" + b.url}, "go", "run", ".")
		require.Equal(t, want[i], strings.TrimSpace(out))
		require.Contains(t, string(page), "`"+want[i]+"`", "the page says what is printed")
	}
}
