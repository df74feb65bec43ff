package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// statuses are the names under which the code knows a status; another one fails
// the test with its name, to be added here.
var statuses = map[string]int{
	"StatusBadRequest":                  fasthttp.StatusBadRequest,
	"StatusUnauthorized":                fasthttp.StatusUnauthorized,
	"StatusForbidden":                   fasthttp.StatusForbidden,
	"StatusNotFound":                    fasthttp.StatusNotFound,
	"StatusMethodNotAllowed":            fasthttp.StatusMethodNotAllowed,
	"StatusRequestTimeout":              fasthttp.StatusRequestTimeout,
	"StatusConflict":                    fasthttp.StatusConflict,
	"StatusPreconditionFailed":          fasthttp.StatusPreconditionFailed,
	"StatusRequestEntityTooLarge":       fasthttp.StatusRequestEntityTooLarge,
	"StatusUnsupportedMediaType":        fasthttp.StatusUnsupportedMediaType,
	"StatusGone":                        fasthttp.StatusGone,
	"StatusTooManyRequests":             fasthttp.StatusTooManyRequests,
	"StatusRequestHeaderFieldsTooLarge": fasthttp.StatusRequestHeaderFieldsTooLarge,
	"StatusInternalServerError":         fasthttp.StatusInternalServerError,
	"StatusServiceUnavailable":          fasthttp.StatusServiceUnavailable,
}

// problems returns "status code" of every problem that the code can answer,
// sorted: each call of problem.New and Newf and each literal of a Problem.
func problems(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "test" || d.Name() == "bench") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			status, code := problemAt(n, file.Name.Name)
			if code == nil {
				return true
			}
			if name, ok := code.(*ast.Ident); ok && name.Name == "code" {
				return true // problem.Newf hands its own parameters on
			}
			where := files.Position(n.Pos())
			literal, ok := code.(*ast.BasicLit)
			require.True(t, ok, "%s: the code of a problem is a literal, so that it can be listed", where)
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			all = append(all, strconv.Itoa(statusOf(t, status, where))+" "+text)
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, all)
	slices.Sort(all)
	return slices.Compact(all)
}

// problemAt returns the status and the code of a problem that n makes; the code
// is nil when it makes none.
func problemAt(n ast.Node, pkg string) (status, code ast.Expr) {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			if x, ok := f.X.(*ast.Ident); ok && x.Name == "problem" {
				name = f.Sel.Name
			}
		case *ast.Ident:
			if pkg == "problem" {
				name = f.Name
			}
		}
		if (name == "New" || name == "Newf") && len(n.Args) >= 3 {
			return n.Args[0], n.Args[1]
		}
	case *ast.CompositeLit:
		named := n.Type
		if s, ok := named.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && pkg == "problem" && x.Name == "apitype" {
				return nil, nil // Problem.JSON encodes a problem that exists
			}
			named = s.Sel
		}
		if id, ok := named.(*ast.Ident); !ok || id.Name != "Problem" {
			return nil, nil
		}
		fields := map[string]ast.Expr{}
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok {
					fields[key.Name] = kv.Value
				}
			}
		}
		if id, ok := fields["Code"].(*ast.Ident); ok && id.Name == "code" {
			return nil, nil // problem.New itself
		}
		return fields["Status"], fields["Code"]
	}
	return nil, nil
}

func statusOf(t *testing.T, e ast.Expr, where token.Position) int {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.Atoi(e.Value)
		require.NoError(t, err, where)
		return n
	case *ast.SelectorExpr:
		require.Contains(t, statuses, e.Sel.Name, where)
		return statuses[e.Sel.Name]
	}
	require.Fail(t, "the status of a problem is a number or a constant", where)
	return 0
}
