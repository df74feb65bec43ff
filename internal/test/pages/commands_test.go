package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/script"
)

// commands says of each page with commands which test runs them, or why none does. A reason has blanks.
var commands = map[string]string{
	"README.md":                               "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/first-steps.md":                     "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/publishing.md":                      "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/consumer-life.md":                   "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/tokens.md":                          "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/bulk.md":                            "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/resources.md":                       "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/scheduling.md":                      "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/walkthrough.md":                     "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/walkthrough-2.md":                   "TestTheCommandsOfThePagesWorkInAnyState",
	"docs/start/*.md":                         "TestEachTutorialAnswersAsItsPageSays",
	"docs/audit.md":                           "TestTheCommandsOfTheReferencePagesWork",
	"docs/brokers.md":                         "TestTheCommandsOfTheReferencePagesWork",
	"docs/groups.md":                          "TestTheCommandsOfTheReferencePagesWork",
	"docs/mail.md":                            "TestTheCommandsOfThePageAboutMailsWork",
	"docs/notices.md":                         "TestTheCommandsOfTheReferencePagesWork",
	"docs/openapi.md":                         "TestTheCommandsOfTheReferencePagesWork",
	"docs/operating.md":                       "TestTheCommandsOfTheReferencePagesWork",
	"docs/portal.md":                          "TestTheCommandsOfTheReferencePagesWork",
	"docs/operate/keeping.md":                 "TestTheCommandsOfTheReferencePagesWork",
	"docs/operate/archive.md":                 "TestTheCommandsOfTheReferencePagesWork",
	"docs/operate/backup.md":                  "TestTheCommandsOfThePageAboutBackupsWork",
	"docs/ctl.md":                             "TestTheCommandsOfThePageOfCtlWork",
	"docs/dashboard.md":                       "TestTheDashboardShowsABrokerWithData",
	"docs/how-to/each-route-by-curl.md":       "TestThePageOfEachRouteByCurlHasEachAndWorks",
	"docs/how-to/move-from-convoy.md":         "TestTheCommandsOfThePagesAboutMovingWork",
	"docs/how-to/move-from-hermes.md":         "TestTheCommandsOfThePagesAboutMovingWork",
	"docs/how-to/move-from-svix.md":           "TestTheCommandsOfThePagesAboutMovingWork",
	"docs/how-to/move-from-webhook-broker.md": "TestRealServersTheCommandsOfThePageMoveABroker",
	"docs/operate/after-an-outage.md":         "TestTheCommandsOfThePagesForOperatorsWork",
	"docs/operate/it-fails.md":                "TestTheCommandsOfThePageAboutFailuresWork",
	"docs/operate/it-is-late.md":              "TestTheCommandsOfThePagesForOperatorsWork",
	"docs/operate/nothing-arrives.md":         "TestTheCommandsOfThePagesForOperatorsWork",
	"docs/operate/consumers-stand-still.md":   "TestThePageAboutConsumersThatStandStillFindsEightReasons",
	"docs/responses.md":                       "TestTheDemoOfResponsesShowsTheResponseComingBack",
	"docs/error-reports.md":                   "TestTheCommandsOfThePageAboutErrorReportsWork",
	"docs/tracing.md":                         "TestTheCommandsOfThePageAboutTracesWork",
	"docs/how-to/encrypt-secrets.md":          "TestTheCommandsOfThePageAboutEncryptionWork",
	"docs/how-to/from-sqs.md":                 "TestTheCommandsOfThePageAboutSQSWork",
	"docs/how-to/outbox.md":                   "TestTheCommandsOfThePageAboutTheOutboxWork",
	"docs/how-to/tls-and-http2.md":            "TestTheCommandsOfThePageAboutTLSWork",
	"docs/operate/check.md":                   "TestTheCommandsOfThePageAboutTheCheckWork",
	"docs/operate/rehearsal.md":               "TestTheCommandsOfThePageAboutRehearsalsWork",
	"docs/operate/systemd.md":                 "TestTheCommandsOfThePageAboutSystemdWork",
	"docs/operate/galera.md":                  "TestTheCommandsOfThePagesAboutClustersFitTheProgram",
	"docs/operate/several-stores.md":          "TestTheCommandsOfThePagesAboutClustersFitTheProgram",
	"docs/operate/kubernetes.md":              "TestTheCommandsOfThePagesAboutClustersFitTheProgram",
	"clients/go/README.md":                    "TestTheProgramsOfTheGoClientsPageRun",
	"clients/node/README.md":                  "TestThePagesOfTheNodeClientAreTrue",
	"clients/python/README.md":                "TestThePythonPackageInstallsIntoACleanPlace",

	"CONTRIBUTING.md":                "what CI runs; the tests below find its targets and its Go tests",
	"docs/benchmarks.md":             "minutes long; tests find its targets, benchmarks and flags of bench",
	"docs/explain/clients-beside.md": "a target of make, ten minutes long",
	"docs/peers.md":                  "installs other brokers, an hour long; the test below finds its flags",
	"docs/operate/packages.md":       "needs packages, whose build takes minutes; make packages runs them in a folder",
	"docs/nats.md":                   "needs a server; the tests of the module natsserver do what they do",
}

// Each page with commands has a test that runs them, or the list says why not: a new page cannot be forgotten.
func TestEachPageWithCommandsHasATestOrAReason(t *testing.T) {
	tests := testFiles(t, "cmd/broker", "internal/test/clients")
	var listed []string
	for pattern, by := range commands {
		if !strings.Contains(by, " ") {
			require.Contains(t, tests, by, "named for %s", pattern)
			require.True(t, slices.ContainsFunc(textsOf(tests[by], by), func(text string) bool {
				return strings.TrimLeft(text, "./") == pattern
			}), "%s does not name %s, nor does what it uses of its file", by, pattern)
		}
		listed = append(listed, script.Glob(t, pattern)...)
	}
	var have []string
	for _, page := range pagesOf(t) {
		if len(script.Blocks(read(t, page), "sh")) > 0 {
			have = append(have, page)
		}
	}
	slices.Sort(listed)
	slices.Sort(have)
	require.Equal(t, have, listed)
}

// testFiles returns the file of each test of packages.
func testFiles(t *testing.T, folders ...string) map[string]*ast.File {
	t.Helper()
	tests := map[string]*ast.File{}
	for _, folder := range folders {
		for _, name := range script.Glob(t, folder+"/*_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
					tests[f.Name.Name] = file
				}
			}
		}
	}
	return tests
}

// textsOf returns the texts in a test, and in what it uses of its file.
func textsOf(file *ast.File, test string) (texts []string) {
	declared := map[string]ast.Node{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			declared[d.Name.Name] = d
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						declared[name.Name] = v
					}
				}
			}
		}
	}
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil {
				texts = append(texts, text)
			}
		case *ast.Ident:
			if used := declared[n.Name]; used != nil {
				delete(declared, n.Name)
				ast.Inspect(used, visit)
			}
		}
		return true
	}
	visit(ast.NewIdent(test))
	return texts
}

// The list is worth nothing if a test may name a page that it does not run: a page in another test of its file, or in
// a sentence, does not count.
func TestAPageIsNamedByTheTestItself(t *testing.T) {
	const source = `package p
var list = []string{"docs/a.md"}
func run() { visit(list) }
func TestOne(t *testing.T) { run() }
func TestTwo(t *testing.T) { use("docs/b.md is long") } // "docs/c.md"`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"docs/a.md"}, textsOf(file, "TestOne"))
	require.Equal(t, []string{"docs/b.md is long"}, textsOf(file, "TestTwo"))
}

// documents are the pages with commands that users may type: all, and those of the examples.
func documents(t *testing.T) []string {
	t.Helper()
	return append(script.Pages(t), script.Glob(t, "examples/*/README.md")...)
}

// commandsOf returns the commands of a page: those of its blocks, and those in sentences.
func commandsOf(t *testing.T, page string) [][]string {
	t.Helper()
	whole, parts := script.Shown(read(t, page))
	return append(whole, parts...)
}

// Each target of make that a page names is there, with the variables that it is given, and each script.
func TestEachTargetAndScriptOfAPageExists(t *testing.T) {
	makefile := read(t, "Makefile")
	target, variable := regexp.MustCompile(`^[a-z][a-z0-9-]*$`), regexp.MustCompile(`^([A-Z][A-Z0-9_]*)=`)
	targets := 0
	for _, page := range documents(t) {
		for _, words := range commandsOf(t, page) {
			switch {
			case strings.HasSuffix(words[0], ".sh") && strings.Contains(words[0], "scripts/"):
				require.FileExists(t, filepath.Join(root, words[0]), page)
			case words[0] == "make":
				for _, word := range words[1:] {
					if target.MatchString(word) {
						targets++
						require.Contains(t, makefile, "\n"+word+": ## ", "%s: %s", page, words)
					} else if m := variable.FindStringSubmatch(word); m != nil && !strings.HasPrefix(word, "BROKER_") {
						require.Regexp(t, `\$\((or \$\()?`+m[1]+`\)|'\$\(`+m[1], makefile, "%s: %s", page, words)
					}
				}
			}
		}
	}
	require.Greater(t, targets, 50)
}

// Each block of commands is one that bash can read.
func TestEachBlockOfCommandsIsWellFormed(t *testing.T) {
	for _, page := range documents(t) {
		for _, block := range script.Blocks(read(t, page), "sh") {
			bash := exec.Command("bash", "-n")
			bash.Stdin = strings.NewReader(block)
			said, err := bash.CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", page, block, said)
		}
	}
}

// Each go test of a page names a package and finds tests or benchmarks there.
func TestEachGoTestOfAPageFindsSome(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	found := 0
	for _, page := range pagesOf(t) {
		for _, words := range commandsOf(t, page) {
			at := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "./") })
			if len(words) < 3 || words[0] != "go" || words[1] != "test" || at < 0 || words[at] == "./..." ||
				words[at] == "./PACKAGE" {
				continue
			}
			folder := strings.TrimSuffix(words[at], "/...")
			require.DirExists(t, filepath.Join(root, folder), page)
			var names []string
			for _, file := range script.Glob(t, folder+"/*_test.go") {
				for _, m := range function.FindAllStringSubmatch(read(t, file), -1) {
					names = append(names, m[1])
				}
			}
			for i, word := range words[:len(words)-1] {
				if pattern, _, _ := strings.Cut(words[i+1], "/"); (word == "-run" || word == "-bench") && pattern != "^$" {
					for one := range strings.SplitSeq(pattern, "|") {
						found++
						require.True(t, slices.ContainsFunc(names, regexp.MustCompile(one).MatchString), "%s: %s", page, words)
					}
				}
			}
		}
	}
	require.Greater(t, found, 5)
}

// The flags of the page about other brokers are those of its program, which is a module of its own.
func TestEachFlagOfThePageAboutPeersExists(t *testing.T) {
	source, flags := read(t, "bench/peers/options.go")+read(t, "bench/peers/site.go"), 0
	for _, words := range commandsOf(t, "docs/peers.md") {
		if words[0] != "scripts/peers.sh" && words[0] != "bin/peers/peers" {
			continue
		}
		for _, word := range words[1:] {
			if name, ok := strings.CutPrefix(word, "-"); ok && name != "h" {
				flags++
				declared := regexp.MustCompile(`f\.\w+\((&[\w.]+, )?"` + name + `", |\n\t"` + name + `": +"`)
				require.True(t, declared.MatchString(source), "%s", words)
			}
		}
	}
	require.Greater(t, flags, 5)
}
