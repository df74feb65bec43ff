package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	"docs/mail.md":                            "TestTheCommandsOfTheReferencePagesWork",
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

	"CONTRIBUTING.md":                "targets of make, which CI runs",
	"docs/benchmarks.md":             "targets of make, minutes long",
	"docs/explain/clients-beside.md": "a target of make, minutes long",
	"docs/peers.md":                  "a target of make, minutes long",
	"docs/responses.md":              "make demo-responses, whose program has a test of its own",
	"docs/error-reports.md":          "the address is that of a service",
	"docs/tracing.md":                "settings, whose tests set them",
	"docs/how-to/encrypt-secrets.md": "paths of an installation; the tests of reencrypt run the command",
	"docs/how-to/from-sqs.md":        "a client of AWS; the tests of the SQS door run one as a library",
	"docs/how-to/outbox.md":          "a package for Python; the tests of the outbox run the command",
	"docs/how-to/tls-and-http2.md":   "settings, whose tests set them with certificates of their own",
	"docs/operate/check.md":          "one command, whose tests run it in each state",
	"docs/operate/galera.md":         "settings of a cluster; make galera runs one",
	"docs/operate/kubernetes.md":     "needs a cluster; the tests of the chart render it",
	"docs/operate/packages.md":       "installs a package; make packages looks at it",
	"docs/operate/rehearsal.md":      "stops servers of somebody; its tests stop their own",
	"docs/operate/systemd.md":        "changes the machine; the tests of the units read them",
	"clients/go/README.md":           "fetches and tests the module, as CI does",
	"clients/node/README.md":         "installs the package, as the tests of the clients do",
	"clients/python/README.md":       "installs the package, as the tests of the clients do",
}

// Each command of a page is run by a test, or the list says why not: a new page cannot be forgotten.
func TestEachPageWithCommandsHasATestOrAReason(t *testing.T) {
	var tests []string
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, fs.WalkDir(os.DirFS(filepath.Join(root, "cmd/broker")), ".", func(name string, _ fs.DirEntry,
		err error) error {
		if err == nil && strings.HasSuffix(name, "_test.go") {
			for _, m := range function.FindAllStringSubmatch(read(t, "cmd/broker/"+name), -1) {
				tests = append(tests, m[1])
			}
		}
		return err
	}))
	var listed []string
	for pattern, by := range commands {
		if !strings.Contains(by, " ") {
			require.True(t, slices.Contains(tests, by), "%s names %s", pattern, by)
		}
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		for _, path := range found {
			rel, err := filepath.Rel(root, path)
			require.NoError(t, err)
			listed = append(listed, rel)
		}
	}
	var have []string
	for _, page := range pagesOf(t) {
		if regexp.MustCompile("(?m)^ *```sh").MatchString(read(t, page)) {
			have = append(have, page)
		}
	}
	slices.Sort(listed)
	slices.Sort(have)
	require.Equal(t, have, listed)
}
