package shape

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/penstock-broker/penstock/"

// The broker that users run contains nothing that tests it, loads it or breaks it.
func TestTheBrokerLinksNoTestNoLoadAndNoFault(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		linked := linkedBy(t, system, "cmd/broker")
		require.Contains(t, linked, "durable", "the imports are followed")
		for name, files := range linked {
			require.False(t, isProof(name), "cmd/broker links %s on %s", name, system)
			for _, file := range files {
				require.False(t, arms(t, file), "%s sets failpoint.Hit on %s", file, system)
			}
		}
	}
}

// isProof reports whether a package of this module is for tests or load.
func isProof(name string) bool {
	return strings.HasPrefix(name, "internal/test/") || name == "bench" || strings.HasPrefix(name, "bench/") ||
		name == "testing"
}

// linkedBy returns the files of a package and of all packages of this module that it imports,
// as a build without tags takes them.
func linkedBy(t *testing.T, system, program string) map[string][]string {
	t.Helper()
	with := build.Default
	with.GOOS, with.GOARCH, with.CgoEnabled, with.BuildTags = system, "amd64", false, nil
	linked := map[string][]string{}
	for open := []string{program}; len(open) > 0; {
		name := open[0]
		open = open[1:]
		if _, known := linked[name]; known {
			continue
		}
		linked[name] = nil
		if name == "testing" {
			continue
		}
		p, err := with.ImportDir(filepath.Join(root, name), 0)
		require.NoError(t, err)
		for _, file := range p.GoFiles {
			linked[name] = append(linked[name], filepath.Join(root, name, file))
		}
		for _, imported := range p.Imports {
			if own, ok := strings.CutPrefix(imported, module); ok {
				open = append(open, own)
			} else if path.Base(imported) == "testing" {
				open = append(open, "testing")
			}
		}
	}
	return linked
}

// arms reports whether a file assigns to Hit, or to failpoint.Hit: the program then kills
// itself at a point of a message's life.
func arms(t *testing.T, file string) (found bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			found = found || slices.ContainsFunc(a.Lhs, isHit)
		}
		return !found
	})
	return found
}

func isHit(e ast.Expr) bool {
	if s, ok := e.(*ast.SelectorExpr); ok {
		return s.Sel.Name == "Hit"
	}
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "Hit"
}

// The rule is worth nothing if it does not see the file that arms the points.
func TestAFileThatArmsTheFailpointsIsSeen(t *testing.T) {
	require.True(t, arms(t, filepath.Join(root, "internal/tool/failpoint/order/order.go")))
	require.True(t, isProof("internal/test/servers"))
	require.Contains(t, linkedBy(t, "linux", "cmd/bench"), "bench")
}
