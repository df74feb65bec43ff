package pages

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/test/script"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

var update = flag.Bool("update", false, "rewrite the table of docs/routes.md")

const root = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// between returns the lines of a table, without its two head lines, that stands
// between the comments <!-- name --> and <!-- /name -->.
func between(t *testing.T, text, name string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "<!-- "+name+" -->\n")
	require.True(t, ok, "the page has a table %q", name)
	table, _, ok := strings.Cut(rest, "<!-- /"+name+" -->")
	require.True(t, ok, "the table %q ends", name)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.GreaterOrEqual(t, len(lines), 2)
	return lines[2:]
}

// cells splits a line of a table.
func cells(line string) []string {
	parts := strings.Split(strings.Trim(line, "|"), "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// apiPages are the pages that describe the API, docs/api.md and one for each area. Together they say
// everything once.
var apiPages = []string{"docs/api.md", "docs/resources.md", "docs/groups.md", "docs/publishing.md",
	"docs/scheduling.md", "docs/bulk.md",
	"docs/consuming.md", "docs/messages.md", "docs/deadletters.md", "docs/responses.md", "docs/notices.md",
	"docs/operating.md", "docs/why.md", "docs/workers.md", "docs/sqs.md", "docs/tokens.md", "docs/metrics.md",
	"docs/dashboard.md", "docs/dashboard-pages.md", "docs/acknowledgements.md",
	"docs/replays.md", "docs/fields.md", "docs/consumer-metrics.md", "docs/portal.md", "docs/audit.md",
	"docs/brokers.md", "docs/openapi.md", "docs/errors.md", "docs/errors-400.md"}

// apiTable returns what stands between the comments of a table that exactly one of apiPages has.
func apiTable(t *testing.T, name string) string {
	t.Helper()
	var tables []string
	for _, page := range apiPages {
		for _, rest := range strings.Split(read(t, page), "<!-- "+name+" -->\n")[1:] {
			table, _, ok := strings.Cut(rest, "<!-- /"+name+" -->")
			require.True(t, ok, "the table %q of %s ends", name, page)
			tables = append(tables, table)
		}
	}
	require.Len(t, tables, 1, "one page has a table %q", name)
	return tables[0]
}

var mark = regexp.MustCompile(`<!-- route (.*) -->`)

// sections returns for each route its section, as a link from docs/routes.md: the first heading after its
// comment, or before it where the page goes on without one.
func sections(t *testing.T) map[string]string {
	t.Helper()
	heading := regexp.MustCompile(`(?m)^#+ .*$`)
	links := map[string]string{}
	for _, page := range apiPages {
		text := read(t, page)
		for _, at := range mark.FindAllStringSubmatchIndex(text, -1) {
			title, _, _ := strings.Cut(strings.TrimLeft(mark.ReplaceAllString(text[at[1]:], ""), "\n"), "\n")
			if !heading.MatchString(title) {
				before := heading.FindAllString(text[:at[0]], -1)
				require.NotEmpty(t, before, page)
				title = before[len(before)-1]
			}
			links[text[at[2]:at[3]]] = filepath.Base(page) + "#" + anchors(title)[0]
		}
	}
	return links
}

func TestThePageOfRoutesListsThem(t *testing.T) {
	var want []string
	links := sections(t)
	for _, r := range api.Routes() {
		link := links[fmt.Sprintf("%s %s %s", r.Method, r.Path, r.Access)]
		want = append(want, fmt.Sprintf("| [`%s %s`](%s) | %s | %s |", r.Method, r.Path, link, r.Access, r.Summary))
	}
	text := read(t, "docs/routes.md")
	got := between(t, text, "routes")
	if *update {
		old, fresh := strings.Join(got, "\n"), strings.Join(want, "\n")
		require.NoError(t, os.WriteFile(filepath.Join(root, "docs/routes.md"), []byte(strings.Replace(text, old, fresh, 1)),
			0o644))
		return
	}
	require.Equal(t, want, got, "go test ./internal/test/pages -update rewrites the table")
}

// Every route has a comment <!-- route METHOD /path access --> at its one section, and every page with
// such a comment is one of apiPages.
func TestAPIPagesDescribeEachRouteOnceWithItsAccess(t *testing.T) {
	var want, got []string
	for _, r := range api.Routes() {
		want = append(want, fmt.Sprintf("%s %s %s", r.Method, r.Path, r.Access))
	}
	for _, page := range pagesOf(t) {
		for _, m := range mark.FindAllStringSubmatch(read(t, page), -1) {
			require.Contains(t, apiPages, page)
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

// Somebody new reads each page of the API in one sitting, and gets to it from the first one.
func TestAPIPagesAreShortAndLinked(t *testing.T) {
	for _, page := range apiPages {
		require.Less(t, strings.Count(read(t, page), "\n"), 300, page)
		if page != "docs/api.md" {
			require.Contains(t, read(t, "docs/api.md"), "]("+filepath.Base(page)+")")
			require.Contains(t, read(t, page), "](api.md)")
		}
	}
}

func TestAPIPageListsTheErrorCodes(t *testing.T) {
	var got []string
	for page, own := range map[string]bool{"docs/errors-400.md": true, "docs/errors.md": false} {
		var codes []string
		for _, line := range between(t, read(t, page), "codes") {
			c := cells(line)
			require.Len(t, c, 3, line)
			require.NotEmpty(t, c[2], "%s says when", c[1])
			require.Equal(t, own, c[0] == "400", "%s is on the other page", c[1])
			codes = append(codes, c[0]+" "+strings.Trim(c[1], "`"))
		}
		require.True(t, slices.IsSorted(codes), "%s is in the order of status and code", page)
		got = append(got, codes...)
	}
	slices.Sort(got)
	require.Equal(t, problems(t), got, "docs/errors*.md: one line for each problem in the code")
}

func TestTablesPageListsTheTables(t *testing.T) {
	var want, got []string
	for _, dialect := range []string{"mysql", "sqlite"} {
		files, err := filepath.Glob(filepath.Join(root, "durable/migrations", dialect, "*.sql"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`CREATE TABLE IF NOT EXISTS (\w+)`).FindAllStringSubmatch(string(text), -1) {
				want = append(want, m[1])
			}
		}
	}
	for _, line := range between(t, read(t, "docs/tables.md"), "tables") {
		got = append(got, strings.Trim(cells(line)[0], "`"))
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, slices.Compact(want), got)
}

func TestTheListOfDecisionsIsWhole(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/decisions/0*.md"))
	require.NoError(t, err)
	list := read(t, "docs/decisions/README.md")
	require.Equal(t, len(files), strings.Count(list, ".md) |"))
	for _, file := range files {
		title, _, _ := strings.Cut(read(t, "docs/decisions/"+filepath.Base(file)), "\n")
		number, name, _ := strings.Cut(strings.TrimPrefix(title, "# "), ". ")
		require.Contains(t, list, fmt.Sprintf("| %s | [%s](%s) |", number, name, filepath.Base(file)))
	}
}

// The index of the pages has each of them, but the decisions, which have an index of their own.
func TestTheIndexHasEachPage(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range pagesOf(t) {
		rel, ok := strings.CutPrefix(page, "docs/")
		if ok && rel != "README.md" && !strings.HasPrefix(rel, "decisions/") {
			require.Contains(t, index, "]("+rel+")")
		}
	}
	require.Contains(t, index, "](decisions/README.md)")
}

// The numbers of the decisions have no gap, and no page says what will be decided.
func TestTheNumbersOfTheDecisionsHaveNoGap(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/decisions/0*.md"))
	require.NoError(t, err)
	for i, file := range files {
		require.True(t, strings.HasPrefix(filepath.Base(file), fmt.Sprintf("%03d-", i+1)), file)
		require.NotContains(t, read(t, "docs/decisions/"+filepath.Base(file)), " will be ", file)
	}
}

// A visitor reads the README in some minutes, and finds the rest from there.
func TestTheReadmeIsShort(t *testing.T) {
	require.LessOrEqual(t, len(strings.Fields(read(t, "README.md"))), 900)
}

// A page is read in five minutes. The list of changes is no page to be read: it grows with each change.
func TestAPageIsReadInFiveMinutes(t *testing.T) {
	const mostWords = 2000
	word := regexp.MustCompile(`[\pL\pN]`)
	for _, page := range pagesOf(t) {
		words := 0
		for _, field := range strings.Fields(read(t, page)) {
			if word.MatchString(field) {
				words++
			}
		}
		if page != "CHANGELOG.md" {
			require.LessOrEqual(t, words, mostWords, "%s: split it, or shorten it", page)
		}
	}
}

// ARCHITECTURE.md fits on four screens.
func TestTheArchitectureIsShort(t *testing.T) {
	require.LessOrEqual(t, strings.Count(read(t, "ARCHITECTURE.md"), "\n"), 205)
}

// A line of prose has at most 100 characters, unless one word (a link) is longer. Tables, headings
// and code are as wide as they have to be.
func TestProseIsNoWiderThan100(t *testing.T) {
	for _, page := range pagesOf(t) {
		code := false
		for i, line := range strings.Split(read(t, page), "\n") {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "#") || !strings.Contains(text, " ") {
				continue
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 100, "%s:%d", page, i+1)
		}
		require.False(t, code, "%s ends inside a block of code", page)
	}
}

// The files that ARCHITECTURE.md names as entry points, and others in code
// quotes that look like one, exist.
func TestPagesNameFilesThatExist(t *testing.T) {
	named := regexp.MustCompile("`((?:[a-z0-9]+/)+[a-z_]+\\.(?:go|lua|md|sh))`")
	for _, page := range pagesOf(t) {
		for _, m := range named.FindAllStringSubmatch(read(t, page), -1) {
			require.FileExists(t, filepath.Join(root, m[1]), "named in %s", page)
		}
	}
}

// A page names a test, or the beginning of several, as -run does. Planted mistakes and reports prove
// nothing by a test that is gone.
func TestPagesNameTestsThatExist(t *testing.T) {
	var tests []string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, name), -1) {
				tests = append(tests, m[1])
			}
		}
		return err
	}))
	require.Contains(t, tests, "TestPagesNameTestsThatExist")
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	for _, page := range pagesOf(t) {
		for _, name := range named.FindAllString(read(t, page), -1) {
			require.True(t, slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, name) }),
				"%s names %s", page, name)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pagesOf(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			_, err := os.Stat(filepath.Join(root, path))
			require.NoError(t, err, "%s links to %s", page, m[1])
			if anchor != "" {
				require.Contains(t, anchors(read(t, path)), anchor, "%s links to %s", page, m[1])
			}
		}
	}
}

// pagesOf returns every page of the project.
func pagesOf(t *testing.T) []string {
	t.Helper()
	return script.Pages(t)
}

// anchors returns the anchors of a page's headings, as the usual renderers make
// them: lower case, blanks to dashes, everything else but letters and digits out.
func anchors(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_':
				return r
			}
			return -1
		}, strings.ToLower(m[1])))
	}
	return all
}

// The tables of the policies in docs/fields.md are those of the code.
func TestAPIPagesListThePolicies(t *testing.T) {
	for name, fields := range map[string][][2]string{"policy": policy.Table(), "intake": policy.IntakeTable(),
		"sender": policy.SenderTable(), "group": policy.GroupTable()} {
		want := "| field | value |\n| --- | --- |\n"
		for _, f := range fields {
			want += "| `" + f[0] + "` | " + f[1] + " |\n"
		}
		require.Equal(t, want, apiTable(t, name))
	}
}

// Each JSON example on the pages is a request or an answer of some route, member by member.
func TestExamplesOnTheAPIPagesAreOfATypeOfTheAPI(t *testing.T) {
	values := []any{apitype.Problem{}, apitype.History{}, apitype.StatusNotice{}}
	for _, r := range apitype.Routes() {
		for _, a := range append(r.Answers, apitype.Answer{Body: r.Request}) {
			if a.Value != nil && a.Media != apitype.MediaForm {
				values = append(values, a.Value)
			}
		}
	}
	examples := 0
	for _, page := range apiPages {
		for _, block := range regexp.MustCompile("(?s)\n```json\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
			for line := range strings.Lines(block[1]) {
				examples++
				text := strings.TrimSpace(line)
				if strings.HasPrefix(text, `"`) { // a part of an object
					text = "{" + text + "}"
				}
				require.True(t, slices.ContainsFunc(values, func(v any) bool {
					return strictjson.Check([]byte(text), reflect.New(reflect.TypeOf(v)).Interface()) == nil
				}), "%s: %s", page, text)
			}
		}
	}
	require.Greater(t, examples, 20)
}
