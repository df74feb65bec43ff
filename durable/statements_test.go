package durable_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// The files of testdata have every statement that the conformance suite makes a store prepare or send. A
// review sees in them what a change of the code makes of the SQL.
//
//	go test -run 'TestMySQL$|TestSQLite$' ./durable -update
var update = flag.Bool("update", false, "write the statements of the conformance suite to testdata")

// statements are the texts of statements, each once, in the form of shapeOf.
type statements struct {
	heard sync.Map // texts as they are, of statements without values
	mu    sync.Mutex
	all   map[string]bool
}

// listen returns the statements that stores are tapped into, with those that are not heard. When the test
// and its subtests are over, it compares them with a file. A run of some subtests knows a part of the file.
func listen(t *testing.T, file string, unheard []string) *statements {
	s := &statements{all: map[string]bool{}}
	for _, text := range unheard {
		s.keep(text)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		some := strings.Contains(flag.Lookup("test.run").Value.String(), "/") || flag.Lookup("test.skip").Value.String() != ""
		switch {
		case !*update:
			s.compare(t, file, some)
		case some:
			t.Error("some subtests do not have all statements")
		default:
			require.NoError(t, os.WriteFile(file, []byte(s.text()), 0o644))
		}
	})
	return s
}

// tap makes the store tell its statements.
func (s *statements) tap(store *durable.Store) *durable.Store {
	store.Tap(s.hear)
	return store
}

// The text of a migration is in a file of its own.
var migrates = regexp.MustCompile(`goose_db_version`)

// hear is quick, because tests make no exception of the time that it takes: an insert of large messages
// has the form of one of small messages, and most texts were heard before.
func (s *statements) hear(text string) {
	if _, heard := s.heard.Load(text); heard || len(text) > 64<<10 || migrates.MatchString(text) {
		return
	}
	if !built(text) {
		s.heard.Store(text, true)
	}
	s.keep(text)
}

func (s *statements) keep(text string) {
	shapes := shapesOf(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shape := range shapes {
		s.all[shape] = true
	}
}

// end separates the statements of a file.
const end = ";\n\n"

func (s *statements) text() string {
	return strings.Join(slices.Sorted(maps.Keys(s.all)), end) + end
}

func (s *statements) compare(t *testing.T, file string, some bool) {
	stored, err := os.ReadFile(file)
	require.NoError(t, err)
	known := map[string]bool{}
	for text := range strings.SplitSeq(strings.TrimSuffix(string(stored), end), end) {
		known[text] = true
	}
	for _, text := range slices.Sorted(maps.Keys(s.all)) {
		if !known[text] {
			t.Errorf("%s lacks this statement; after a review of it, run the test with -update:\n%s", file, text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(known)) {
		if !s.all[text] && !some {
			t.Errorf("%s has a statement that no test sends:\n%s", file, text)
		}
	}
}

// What differs between two uses of a statement: the values in a text that the builder assembled, and the
// lengths of lists.
var (
	literal     = regexp.MustCompile(`(?s)x'[0-9a-f]*'|'(?:\\.|[^'\\])*'|\bNULL\b`)
	number      = regexp.MustCompile(`SYSDATE\(\d+|[-+*] \d+|paused = \d|k\.no = \d|\d+`)
	inList      = regexp.MustCompile(`IN \(\?(?:, \?)*\)`)
	repeatWhen  = regexp.MustCompile(`(\n +WHEN \? THEN \?)+`)
	derivedName = regexp.MustCompile(`\) t\d+`)
)

// shapesOf returns the statements of a text without what differs between two uses of each.
func shapesOf(text string) (shapes []string) {
	if !built(text) {
		return []string{shapeOf(text)}
	}
	text = literal.ReplaceAllString(strings.Clone(text), "?")
	text = number.ReplaceAllStringFunc(text, func(n string) string {
		if strings.Trim(n, "0123456789") == "" {
			return "?"
		}
		return n
	})
	for one := range strings.SplitSeq(text, ";\n") {
		shapes = append(shapes, shapeOf(one))
	}
	return shapes
}

// built reports whether the builder assembled a text, which has values. It is valid only during the call.
func built(text string) bool {
	return strings.HasPrefix(text, "INSERT INTO") || strings.HasPrefix(text, "START TRANSACTION")
}

func shapeOf(text string) string {
	text = inList.ReplaceAllString(firstRow(text), "IN (?...)")
	text = repeatWhen.ReplaceAllString(text, "$1")
	text = derivedName.ReplaceAllString(text, ") t")
	parts := strings.Split(strings.TrimSpace(text), "\nUNION ALL\n")
	return strings.Join(slices.Compact(parts), "\nUNION ALL\n")
}

// firstRow returns an INSERT with the first row of its values alone.
func firstRow(text string) string {
	const values = "VALUES ("
	at := strings.Index(text, values)
	if at < 0 {
		return text
	}
	first := closing(text, at+len(values))
	last := first
	for strings.HasPrefix(text[last:], ",\n(") {
		last = closing(text, last+len(",\n("))
	}
	return text[:first] + text[last:]
}

// closing returns where the text goes on behind the parenthesis that is open at a place of it.
func closing(text string, at int) int {
	for depth := 1; depth > 0; at++ {
		switch text[at] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return at
}

// A statement that is assembled of several texts has each of them.
func TestEachTextOfAStatementIsInTestdata(t *testing.T) {
	known := ""
	for _, file := range []string{"testdata/mysql.sql", "testdata/sqlite.sql"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		known += oneLine(string(text))
	}
	verb := regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH|SHOW|SET|SAVEPOINT|ROLLBACK|VACUUM|PRAGMA) `)
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	checked := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			// filled in later
			if text = oneLine(text); !verb.MatchString(text) || strings.ContainsAny(text, "%") ||
				strings.Contains(text, "(index)") {
				return true
			}
			checked++
			text, _, _ = strings.Cut(text, "(?, ...)")
			if !strings.Contains(known, strings.TrimSpace(text)) {
				t.Errorf("%s: neither file has this statement:\n%s", path, text)
			}
			return true
		})
	}
	require.Greater(t, checked, 100)
}

func oneLine(text string) string {
	return inList.ReplaceAllString(strings.Join(strings.Fields(text), " "), "IN (?...)")
}

func TestTheShapeOfAStatementIsThatOfEachUse(t *testing.T) {
	for text, shape := range map[string]string{
		"\nSELECT a\nFROM b\nWHERE c IN (?, ?, ?)":                                   "SELECT a\nFROM b\nWHERE c IN (?...)",
		"\nINSERT INTO a (\n    b,\n    c\n)\nVALUES (?, ?),\n(?, ?),\n(?, ?)\nON X": "INSERT INTO a (\n    b,\n    c\n)\nVALUES (?, ?)\nON X",
		"INSERT INTO a (b, c) VALUES (1,x'0f'),\n(2,'it\\'s (')":                     "INSERT INTO a (b, c) VALUES (?,?)",
		"\nUPDATE a\nSET b = CASE c\n  WHEN ? THEN ?\n  WHEN ? THEN ?\n  END":        "UPDATE a\nSET b = CASE c\n  WHEN ? THEN ?\n  END",
		"\nSELECT *\nFROM (a) t0\nUNION ALL\nSELECT *\nFROM (a) t1":                  "SELECT *\nFROM (a) t",
	} {
		require.Equal(t, []string{shape}, shapesOf(text))
	}
	require.Equal(t, []string{"START TRANSACTION", "INSERT INTO a (b) VALUES (?)", "COMMIT"},
		shapesOf("START TRANSACTION;\nINSERT INTO a (b) VALUES (5),\n(6);\nCOMMIT"))
}
