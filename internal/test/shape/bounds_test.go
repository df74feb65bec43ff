package shape

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	maxFuncLines = 60
	maxFileLines = 600 // make lint names files of more than 350: is there a second noun in them?
	maxParams    = 5   // of a constructor
)

const root = "../../.."

func TestProductionCodeKeepsItsBounds(t *testing.T) {
	found := map[string]int{}
	for name, src := range production(t) {
		maps.Copy(found, excesses(t, name, src))
	}
	require.Empty(t, found, "at most %d lines in a function, %d in a file, %d parameters of a constructor", maxFuncLines,
		maxFileLines, maxParams)
}

// production returns the source of all Go files that are no tests, by path.
func production(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
			name == "internal/test"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files[name], err = os.ReadFile(filepath.Join(root, name))
		return err
	})
	require.NoError(t, err)
	require.Contains(t, files, "cmd/broker/main.go", "the tree is found")
	return files
}

var constructor = regexp.MustCompile(`^(New|new|Open|open)(\P{Ll}|$)`)

// excesses returns the size of everything in a file that exceeds its bound, by place.
func excesses(t *testing.T, name string, src []byte) map[string]int {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	require.NoError(t, err)
	out := map[string]int{}
	note := func(place string, size, most int) {
		if size > most {
			out[name+": "+place] = size
		}
	}
	note("lines", bytes.Count(src, []byte("\n")), maxFileLines)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		note("lines of "+called(f), set.Position(f.End()).Line-set.Position(f.Pos()).Line+1, maxFuncLines)
		if constructor.MatchString(f.Name.Name) {
			note("parameters of "+called(f), f.Type.Params.NumFields(), maxParams)
		}
	}
	return out
}

// called returns the name of a function, with the type of its receiver where it has one.
func called(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	switch generic := receiver.(type) {
	case *ast.IndexExpr:
		receiver = generic.X
	case *ast.IndexListExpr:
		receiver = generic.X
	}
	return fmt.Sprintf("%v.%s", receiver, f.Name.Name)
}

func TestEachBoundIsHeldTo(t *testing.T) {
	body := func(lines int) string { return "{" + strings.Repeat("\n", lines-1) + "}\n" }
	for src, want := range map[string]map[string]int{
		"func f() " + body(60):                                     {},
		"func f() " + body(61):                                     {"f.go: lines of f": 61},
		"func (t *T[K]) f() " + body(99):                           {"f.go: lines of T.f": 99},
		"func newT(a, b, c int, d, e string) " + body(1):           {},
		"func newT(a, b, c int, d, e string, f bool) " + body(1):   {"f.go: parameters of newT": 6},
		"func (T) Open(a, b, c int, d, e, f string) " + body(1):    {"f.go: parameters of T.Open": 6},
		"func newest(a, b, c int, d, e string, f bool) " + body(1): {},
		strings.Repeat("\n", 599):                                  {},
		strings.Repeat("\n", 600):                                  {"f.go: lines": 601},
	} {
		require.Equal(t, want, excesses(t, "f.go", []byte("package p\n"+src)), "%q", src)
	}
}
