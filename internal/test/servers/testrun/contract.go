//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-broker/penstock/internal/test/traffic"
)

// contract is the module that compares openapi.json with the traffic of the tests.
const contract = "internal/test/contract"

// modules are those tests that need libraries which nothing else here needs, in modules of their own.
var modules = []string{"internal/test/deployment", "internal/test/mysqlengine", "internal/test/mysqlgrammar",
	"internal/test/natsserver", "internal/test/objectstore"}

// testModules runs their tests and reports whether they passed. What they read is outside of their modules, where no
// cache sees it change.
func testModules(ctx context.Context, env []string, out io.Writer) bool {
	for _, folder := range modules {
		cmd := command(ctx, "test", "-C", folder, "-count=1", "./...")
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		fmt.Fprintf(out, "%s", text)
		if err != nil {
			fmt.Fprintf(out, "go test -C %s ./...: %v\n", folder, err)
			return false
		}
	}
	return true
}

// keepControl removes the records that are not of package api. make contract compares some tests of cmd/broker too; of
// all of them, on all stores, the record has not been looked at.
func keepControl(folder string) error {
	records, err := filepath.Glob(filepath.Join(folder, "*"))
	for _, name := range records {
		if !strings.HasPrefix(filepath.Base(name), "api.test-") {
			err = errors.Join(err, os.Remove(name))
		}
	}
	return err
}

// compareTraffic tests that module and runs it with the records of a run, whose folder env names. It reports whether
// there are no differences.
func compareTraffic(ctx context.Context, env []string, out io.Writer) bool {
	folder := ""
	for _, line := range env {
		if of, ok := strings.CutPrefix(line, traffic.Folder+"="); ok {
			folder = of
		}
	}
	if err := keepControl(folder); err != nil {
		fmt.Fprintln(out, err)
		return false
	}
	for _, args := range [][]string{{"test", "-C", contract, "."}, {"run", "-C", contract, ".", "-forward", folder}} {
		cmd := command(ctx, args...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		fmt.Fprintf(out, "%s", text)
		if err != nil {
			fmt.Fprintf(out, "go %s: %v; make contract does the same\n", strings.Join(args, " "), err)
			return false
		}
	}
	return true
}
