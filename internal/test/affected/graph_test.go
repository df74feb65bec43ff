package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// app imports store; the tests of tool import app; alone imports nothing.
var sample = graph{
	"m/store": {ImportPath: "m/store", Dir: "store", TestGoFiles: []string{"store_test.go"}},
	"m/app":   {ImportPath: "m/app", Dir: "app", Deps: []string{"fmt", "m/store"}, TestGoFiles: []string{"app_test.go"}},
	"m/tool": {ImportPath: "m/tool", Dir: "tool", XTestImports: []string{"m/app"},
		XTestGoFiles: []string{"tool_test.go"}},
	"m/bare":  {ImportPath: "m/bare", Dir: "bare", Deps: []string{"m/store"}},
	"m/alone": {ImportPath: "m/alone", Dir: "alone", TestGoFiles: []string{"alone_test.go"}},
	"m/serve": {ImportPath: "m/serve", Dir: "internal/test/servers", TestGoFiles: []string{"servers_test.go"}},
	"m/demo":  {ImportPath: "m/demo", Dir: "demo", Deps: []string{"m/clients/go"}, TestGoFiles: []string{"demo_test.go"}},
	"m/internal/test/clients": {ImportPath: "m/internal/test/clients", Dir: "internal/test/clients",
		TestGoFiles: []string{"go_test.go"}},
	"m/shape": {ImportPath: "m/shape", Dir: "internal/test/shape", TestGoFiles: []string{"shape_test.go"}},
}

func TestWhatAChangeMayBreakIsTested(t *testing.T) {
	for files, want := range map[string]string{
		"":                                 "",
		"store/store.go":                   "m/store m/app m/shape m/tool",
		"store/migrations/mysql/0042.sql":  "m/store m/app m/shape m/tool", // embedded
		"store/store_test.go":              "m/store m/shape",              // nobody imports a test
		"app/app.go":                       "m/app m/shape m/tool",
		"app/testdata/golden/a.go":         "m/app m/shape m/tool",
		"alone/alone.go":                   "m/alone m/shape",
		"alone/alone.go store/a_test.go":   "m/alone m/store m/shape",
		"bare/bare.go":                     "m/shape", // it has no tests
		"internal/test/servers/redis.go":   "m/shape", // it has none without servers
		"docs/page.md":                     "m/shape",
		"Makefile":                         "m/shape",
		"store/peers/main.go":              "m/shape", // another module
		"gone/gone.go":                     "m/shape", // a package that was removed
		"store/gone/gone.go store/peers/a": "m/shape",
		"go.sum":                           "m/alone m/app m/demo m/internal/test/clients m/shape m/store m/tool",
		"clients/node/src/index.ts":        "m/internal/test/clients m/shape",
		"clients/go/worker.go":             "m/internal/test/clients m/demo m/shape",
		"clients/go/worker_test.go":        "m/internal/test/clients m/shape",
	} {
		got := sample.affected(strings.Fields(files), []string{"store/peers", "clients/go"})
		require.Equal(t, want, strings.Join(got, " "), files)
	}
}

func TestPackagesAreReadAsGoListPrintsThem(t *testing.T) {
	g, err := parse(
		strings.NewReader(`{"Dir":"/src/app","ImportPath":"m/app","Deps":["m/store"],"TestGoFiles":["a_test.go"]}
{"Dir":"/src","ImportPath":"m"}`), "/src")
	require.NoError(t, err)
	require.Equal(t, graph{
		"m/app": {ImportPath: "m/app", Dir: "app", Deps: []string{"m/store"}, TestGoFiles: []string{"a_test.go"}},
		"m":     {ImportPath: "m", Dir: "."},
	}, g)
	_, err = parse(strings.NewReader(`{"Dir":`), "/src")
	require.ErrorContains(t, err, "go list")
}
