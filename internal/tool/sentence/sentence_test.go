package sentence

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfPackagesBeginNoSentence(t *testing.T) {
	inner := errors.New("egress: address not allowed")
	for want, err := range map[string]error{
		"": nil,
		"connect to MySQL: dial tcp 127.0.0.1:1: refused": errors.New(
			"durable: connect to MySQL: dial tcp 127.0.0.1:1: refused"),
		"BROKER_REDIS_URL: connect: EOF": fmt.Errorf("BROKER_REDIS_URL: %w",
			errors.New("redisq: connect: EOF")),
		"address not allowed: 10.0.0.1 is private": fmt.Errorf("%w: 10.0.0.1 is private", inner),
		"store cannot be used: the disk is full": errors.New(
			"store cannot be used: durable: durable: the disk is full"),
		"timeout (client closed); the answer broke off\naddress 10.0.0.1": errors.New(
			"egress: timeout (egress: client closed); redisq: the answer broke off\ndurable: address 10.0.0.1"),
		"the durable: store":       errors.New("the durable: store"),
		"12:30:15; a::b, http://x": errors.New("12:30:15; a::b, http://x"),
		"nodurable: x":             errors.New("nodurable: x"),
		"a: b:":                    errors.New("durable: a: b:"),
		"ends with ":               errors.New("egress: ends with durable: "[:len("egress: ends with ")]),
	} {
		require.Equal(t, want, Of(err))
	}
}

// begins finds the names at the beginning of the texts of errors.
var begins = regexp.MustCompile(`^([a-z][a-zA-Z0-9]*): `)

// plain are packages whose names are words of texts as well.
var plain = map[string]bool{"main": true}

// Whoever adds a package whose errors begin with its name adds the name here.
func TestEachNameThatBeginsAnErrorIsKnown(t *testing.T) {
	seen, packages := map[string]bool{}, map[string]bool{}
	files := sources(t)
	for _, file := range files {
		packages[file.Name.Name] = !plain[file.Name.Name]
	}
	for name, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			if m := begins.FindStringSubmatch(text); m != nil {
				seen[m[1]] = true
				if packages[m[1]] {
					require.True(t, names[m[1]], "%s has an error that begins with %q", name, m[0])
				}
			}
			return true
		})
	}
	for _, name := range []string{"durable", "egress", "redisq", "journal"} {
		require.True(t, seen[name], name)
	}
}

// sources returns the files of the broker that are no tests.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	const root = "../../.."
	files := map[string]*ast.File{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
			name == "internal/test" || name == "bench" || name == "cmd/bench"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files[name], err = parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
		return err
	})
	require.NoError(t, err)
	require.Contains(t, files, "durable/errors.go", "the tree is found")
	return files
}
