package egress

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// defaults are the names that make a request with the defaults of a library:
// redirects are followed with our tokens, and HTTP_PROXY is obeyed.
var defaults = map[string][]string{
	"net/http": {"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm",
		"ProxyFromEnvironment", "ProxyURL"},
	"github.com/valyala/fasthttp": {"Get", "GetTimeout", "GetDeadline", "Post", "Do", "DoTimeout", "DoDeadline",
		"DoRedirects"},
}

// Every outgoing client of the program may carry a token. So each says by itself
// that it follows no redirect, and has a transport without a proxy.
func TestNoOutgoingClientFollowsRedirectsOrUsesAProxy(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../../.." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if path == "../../../clients" { // of programs of others, whose way to the broker may be a proxy
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
		clients, wrong := outgoing(file)
		found += clients
		for _, w := range wrong {
			t.Errorf("%s: %s", files.Position(w.at), w.what)
		}
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, found, "the re-trigger client is one")
}

func TestTheSearchForOutgoingClientsFindsEachKind(t *testing.T) {
	for _, code := range []string{
		`var _ = http.DefaultClient`,
		`var _ = web.DefaultTransport`,
		`func f() { http.Get("") }`,
		`func f() { fasthttp.Do(nil, nil) }`,
		`var c http.Client`,
		`type t struct { c http.Client }`,
		`type t struct { http.Client }`,
		`var c = new(http.Client)`,
		`var c = &http.Client{Timeout: 1}`,
		`var c = &http.Client{Transport: x}`,
		`var c = http.Client{CheckRedirect: x}`,
		`var c = http.Client{CheckRedirect: nil, Transport: x}`,
		`var c = http.Client{CheckRedirect: x, Transport: nil}`,
		`var c = &http.Transport{Proxy: x}`,
		`func f() { t.Proxy = x }`,
	} {
		text := `package p; import ("net/http"; web "net/http"; "github.com/valyala/fasthttp"); ` + code
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.SkipObjectResolution)
		require.NoError(t, err, code)
		_, wrong := outgoing(file)
		require.NotEmpty(t, wrong, code)
	}
}

type finding struct {
	at   token.Pos
	what string
}

// outgoing counts the HTTP clients that a file makes and tells what is wrong with them.
func outgoing(file *ast.File) (clients int, wrong []finding) {
	paths := map[string]string{} // by the name in the file
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		paths[name] = path
		if strings.HasSuffix(path, "/fasthttpproxy") {
			wrong = append(wrong, finding{i.Pos(), "a dialer that obeys HTTP_PROXY"})
		}
	}
	complain := func(n ast.Node, what string) { wrong = append(wrong, finding{n.Pos(), what}) }
	selected := func(n ast.Node) (path, name string) {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return "", ""
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return "", s.Sel.Name
		}
		return paths[x.Name], s.Sel.Name
	}
	is := func(n ast.Node, typ string) bool {
		path, name := selected(n)
		return path == "net/http" && name == typ
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if path, name := selected(n); slices.Contains(defaults[path], name) {
				complain(n, path+"."+name+" has the defaults of the library")
			}
		case *ast.ValueSpec:
			if is(n.Type, "Client") {
				complain(n, "a zero http.Client follows redirects and uses HTTP_PROXY")
			}
		case *ast.Field:
			if is(n.Type, "Client") {
				complain(n, "a zero http.Client follows redirects and uses HTTP_PROXY")
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "new" && is(n.Args[0], "Client") {
				complain(n, "a zero http.Client follows redirects and uses HTTP_PROXY")
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if _, name := selected(left); name == "Proxy" {
					complain(n, "a transport with a proxy")
				}
			}
		case *ast.CompositeLit:
			keys := setKeys(n)
			switch {
			case is(n.Type, "Client"):
				clients++
				if !keys["Transport"] || !keys["CheckRedirect"] {
					complain(n, "an http.Client needs a Transport and CheckRedirect of its own")
				}
			case is(n.Type, "Transport") && keys["Proxy"]:
				complain(n, "a transport with a proxy")
			}
		}
		return true
	})
	return clients, wrong
}

// setKeys are the fields that a literal sets to something but nil.
func setKeys(l *ast.CompositeLit) map[string]bool {
	keys := map[string]bool{}
	for _, e := range l.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if v, ok := kv.Value.(*ast.Ident); ok && v.Name == "nil" {
			continue
		}
		if k, ok := kv.Key.(*ast.Ident); ok {
			keys[k.Name] = true
		}
	}
	return keys
}
