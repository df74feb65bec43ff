package shape

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxColumns is the width of a line of code; a tab is one column.
const maxColumns = 120

// wide are the files and folders with wider lines. Whatever keeps the bound leaves the list.
var wide = []string{
	// Tables of one row a line: broken rows are harder to compare than long ones.
	"api/routes.go", "bench/table.go", "hotpath/metrics/metrics.go",
	"internal/feature/openapi/generate/describe.go",
	"internal/model/policy/fields.go", "internal/model/problem/problem.go",
	// A module of its own.
	"bench/peers",
	// Functions at the bound of their lines.
	"api/responses.go", "cmd/broker/serve.go", "cmd/broker/wire.go",
	// Tables of what is sent and expected.
	"api/jsonform_test.go", "api/wire_test.go", "cmd/broker/bulkbody_test.go", "cmd/broker/command_test.go",
	"durable/statements_test.go",
}

func TestLinesOfCodeKeepTheirWidth(t *testing.T) {
	found := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		for _, line := range tooWide(src) {
			found[name], found[path.Dir(name)] = true, true
			if !slices.Contains(wide, name) && !slices.Contains(wide, path.Dir(name)) {
				t.Errorf("%s:%d is wider than %d columns", name, line, maxColumns)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for _, place := range wide {
		require.True(t, found[place], "%s keeps the bound: take it off the list", place)
	}
}

// tooWide returns the numbers of the lines of code that are too wide. The text of a raw string does
// not count, because it cannot be broken.
func tooWide(src []byte) (lines []int) {
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	code := slices.Clone(src)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.STRING && text[0] == '`' {
			at := file.Offset(pos)
			end := at + 1 + bytes.IndexByte(src[at+1:], '`') // text lacks carriage returns
			for i := at; i <= end; i++ {
				if code[i] != '\n' {
					code[i] = 0
				}
			}
		}
	}
	for i, line := range bytes.Split(code, []byte("\n")) {
		if utf8.RuneCount(bytes.ReplaceAll(line, []byte{0}, nil)) > maxColumns {
			lines = append(lines, i+1)
		}
	}
	return lines
}

func TestAWideLineIsSeen(t *testing.T) {
	long := strings.Repeat("x", maxColumns)
	for src, want := range map[string][]int{
		"package p\n\nvar " + long[4:] + " int\n":                                   {3},
		"package p\n\nvar a" + long[5:] + "\n":                                      nil, // 120
		"package p\n\n// " + long[2:] + "\n":                                        {3},
		"package p\n\nvar a = `" + long + "`\n":                                     nil,
		"package p\n\nvar a = `b\n" + long + "\n" + long + "` + \"" + long + "\"\n": {5},
		"package p\n\n\tvar ä" + strings.Repeat("ä", 113) + "\n":                    nil, // 119 columns, more bytes
	} {
		require.Equal(t, want, tooWide([]byte(src)), fmt.Sprintf("%q", src))
	}
}
