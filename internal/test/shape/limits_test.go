package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A boundAt is a place of the program that lets so many at once: a share.Bound, a channel of places, or a group of
// goroutines with a limit.
type boundAt struct{ file, name string }

// otherBounds are those that users do not wait for behind each other, or that the page has under another name, by file:
// what it bounds.
var otherBounds = map[string]string{
	"internal/tool/egress/calls.go":        "calls of a host",
	"hotpath/push/dispatcher.go":           "lanes that load payloads: as many as claim, which take turns",
	"hotpath/push/loss.go":                 "goroutines that sleep, not places",
	"internal/feature/exchange/pollrun.go": "polls of one consumer, each with a place of result_polls",
	"api/job.go":                           "look-ups of one request",

	"internal/feature/statusevents/collector.go": "producers whose batches are published, which take turns",
}

// boundsOf returns the bounds of a file: those with a name, and "" for others.
func boundsOf(t *testing.T, name string, src []byte) (found []boundAt) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch of := call.Fun.(type) {
		case *ast.SelectorExpr:
			pkg, _ := of.X.(*ast.Ident)
			switch {
			case of.Sel.Name == "SetLimit":
				found = append(found, boundAt{name, ""})
			case pkg != nil && pkg.Name == "share" && of.Sel.Name == "New" && len(call.Args) == 1:
				found = append(found, boundAt{name, optionName(call.Args[0])})
			}
		case *ast.Ident:
			if of.Name == "make" && len(call.Args) == 2 && isPlaces(call.Args[0]) && !isOne(call.Args[1]) {
				found = append(found, boundAt{name, ""})
			}
		}
		return true
	})
	return found
}

// optionName returns the literal Name of share.Options.
func optionName(e ast.Expr) string {
	options, ok := e.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	for _, element := range options.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := field.Key.(*ast.Ident)
		value, _ := field.Value.(*ast.BasicLit)
		if key != nil && key.Name == "Name" && value != nil {
			text, _ := strconv.Unquote(value.Value)
			return text
		}
	}
	return ""
}

// isPlaces reports whether a type is chan struct{}.
func isPlaces(e ast.Expr) bool {
	c, ok := e.(*ast.ChanType)
	if !ok {
		return false
	}
	s, ok := c.Value.(*ast.StructType)
	return ok && len(s.Fields.List) == 0
}

func isOne(e ast.Expr) bool {
	n, ok := e.(*ast.BasicLit)
	return ok && n.Value == "1"
}

// ofTheBroker reports whether a file is linked into a broker.
func ofTheBroker(name string) bool {
	top, _, _ := strings.Cut(filepath.ToSlash(name), "/")
	return top != "bench" && top != "clients" && top != "scripts" && top != "examples"
}

// What users share stands in a table of one of the pages, once, with its key and its share. One that is added without
// a row fails here.
func TestEachBoundThatUsersShareIsOnItsPage(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/explain/limits*.md"))
	require.NoError(t, err)
	pages := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		pages += string(text)
	}
	named, others := 0, map[string]bool{}
	for name, src := range production(t) {
		if !ofTheBroker(name) {
			continue
		}
		for _, b := range boundsOf(t, name, src) {
			if b.name == "" {
				others[name] = true
				require.Contains(t, otherBounds, name, "a bound without a name: give it one, or say what it bounds")
				continue
			}
			named++
			require.Equal(t, 1, strings.Count(pages, "\n| `"+b.name+"`"),
				"docs/explain/limits*.md have one row of %s, a bound of %s", b.name, name)
		}
	}
	require.Greater(t, named, 10)
	for name := range otherBounds {
		require.Contains(t, others, name, "it has a bound without a name")
	}
}

func TestABoundIsSeen(t *testing.T) {
	src := []byte(`package p
var a = share.New(share.Options{Most: 2, Name: "a"})
var b = share.New(o)
var c, d, e = make(chan struct{}, n), make(chan struct{}, 1), make(chan int, 2)
func f() { g.SetLimit(3) }`)
	require.Equal(t, []boundAt{{"x.go", "a"}, {"x.go", ""}, {"x.go", ""}, {"x.go", ""}}, boundsOf(t, "x.go", src))
}
