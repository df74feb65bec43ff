package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

// A plan is what the arguments ask for.
type plan struct {
	base  string   // the branch to compare with
	skip  string   // tests that need a real server
	smoke string   // the end-to-end tests that are run
	args  []string // further arguments of go test
}

const (
	// brokers is the package whose tests start a broker each. Only those of plan.smoke are run.
	brokers = "cmd/broker"
	// simulated is the package whose tests take minutes of CPU time. Some seeds are run.
	simulated = "internal/test/simulation"
)

func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("affected", flag.ContinueOnError)
	var p plan
	flags.StringVar(&p.base, "base", "main", "branch that this one will join")
	flags.StringVar(&p.skip, "skip", "", "regular expression of tests that are left out")
	flags.StringVar(&p.smoke, "smoke", ".", "regular expression of the tests of "+brokers+" that are run")
	list := flags.Bool("list", false, "print the packages and test nothing")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	p.args = flags.Args()
	begun := time.Now()
	base, err := leftAt(ctx, p.base)
	if err != nil {
		return err
	}
	files, err := changed(ctx, base)
	if err != nil {
		return err
	}
	known, err := packages(ctx)
	if err != nil {
		return err
	}
	modules, err := otherModules(ctx)
	if err != nil {
		return err
	}
	names := known.affected(files, modules)
	fmt.Fprintf(out, "%d files differ from %s (%s): %d packages to test\n", len(files), p.base, base[:min(len(base), 12)],
		len(names))
	if *list || len(names) == 0 {
		for _, name := range names {
			fmt.Fprintln(out, name)
		}
		return nil
	}
	err = p.test(ctx, known, names, out)
	fmt.Fprintf(out, "%v; make test runs everything, on real servers\n", time.Since(begun).Round(time.Second))
	return err
}

// test runs the tests of the packages and, of those that take minutes, a part.
func (p plan) test(ctx context.Context, known graph, names []string, out io.Writer) error {
	var errs []error
	parts := map[string][]string{brokers: {"-run", p.smoke}, simulated: {"-run", "^TestSeeds$", "-simulation.seeds=40"}}
	rest := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return parts[known[name].Dir] != nil })
	if len(rest) > 0 {
		errs = append(errs, p.goTest(ctx, out, nil, rest))
	}
	for _, name := range names {
		if part := parts[known[name].Dir]; part != nil && ctx.Err() == nil {
			errs = append(errs, p.goTest(ctx, out, part, []string{name}))
		}
	}
	return errors.Join(errs...)
}

// goTest runs `go test`. Twice as many packages as there are processors run at once, because many
// tests wait; `make lint` has go vet.
func (p plan) goTest(ctx context.Context, out io.Writer, part, names []string) error {
	args := []string{"test", "-vet=off", "-p", strconv.Itoa(2 * runtime.NumCPU())}
	if p.skip != "" {
		args = append(args, "-skip", p.skip)
	}
	// Behind the package come flags that only its own tests know.
	cmd := command(ctx, "go", slices.Concat(args, p.args, names, part)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// leftAt returns the commit where this branch left another one, which may be known from the remote
// alone.
func leftAt(ctx context.Context, branch string) (string, error) {
	var failure error
	for _, name := range []string{branch, "origin/" + branch} {
		text, err := output(ctx, "git", "merge-base", "HEAD", name)
		if err == nil {
			return strings.TrimSpace(text), nil
		}
		failure = cmp.Or(failure, err)
	}
	return "", failure
}

// changed returns the files that differ from a commit, relative to the root: changed, new, removed,
// under both names where they were renamed, committed or not.
func changed(ctx context.Context, base string) ([]string, error) {
	differ, err := output(ctx, "git", "diff", "--name-only", "--no-renames", "--relative", "-z", base)
	if err != nil {
		return nil, err
	}
	added, err := output(ctx, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(differ+added, func(r rune) bool { return r == 0 }), nil
}

// otherModules returns the folders of the modules below the root.
func otherModules(ctx context.Context) ([]string, error) {
	text, err := output(ctx, "git", "ls-files", "-z", "--", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for file := range strings.SplitSeq(strings.TrimRight(text, "\x00"), "\x00") {
		if file != "" {
			dirs = append(dirs, filepath.ToSlash(filepath.Dir(file)))
		}
	}
	return dirs, nil
}

// packages returns those of the module in this folder. One that does not compile is among them:
// its test says so.
func packages(ctx context.Context) (graph, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	text, err := output(ctx, "go", "list", "-e",
		"-json=ImportPath,Dir,Deps,TestImports,XTestImports,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	return parse(strings.NewReader(text), root)
}

func parse(r io.Reader, root string) (graph, error) {
	g := graph{}
	for d := json.NewDecoder(r); ; {
		var n node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		dir, err := filepath.Rel(root, n.Dir)
		if err != nil {
			return nil, err
		}
		n.Dir = filepath.ToSlash(dir)
		g[n.ImportPath] = n
	}
}

// output runs a program and returns what it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := command(ctx, name, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, complaint.String())
	}
	return string(text), nil
}

func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
