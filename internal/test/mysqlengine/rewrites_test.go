package mysqlengine

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedLock is a statement that waits for a named lock, which belongs to no database.
var namedLock = regexp.MustCompile(`\b(GET|RELEASE)_LOCK\(`)

// A rewrite is a piece of text of the store that this server does not take.
type rewrite struct{ from, to, why string }

var rewrites = []rewrite{
	{"character_set_client = binary", "character_set_client = 'binary'", "the grammar lacks the word as a value of SET"},
	{"character_set_connection = binary", "character_set_connection = 'binary'", "the same"},
	{"character_set_results = binary", "character_set_results = 'binary'", "the same"},
	{"    SESSION innodb_lock_wait_timeout = 5,\n", "", "to this server it is global only"},
	{"    SESSION sql_select_limit = 18446744073709551615,\n", "", "it makes -1 of it and refuses each SELECT then"},
	{"    'sql_select_limit',\n", "", "not set, see above"},
	{"    'tx_isolation',\n", "", "MySQL 8.0.3 has removed it; here it is there and does not change"},
	{"    'tx_read_only',\n", "", "the same"},
	{"FOR UPDATE SKIP LOCKED", "FOR UPDATE", "not in the grammar; here no row is ever locked by another connection"},
}

// rewritten is a statement in the form that this server takes.
func rewritten(text string) string {
	for _, r := range rewrites {
		text = strings.ReplaceAll(text, r.from, r.to)
	}
	return text
}

func TestEachRewriteIsOfAStatementOfTheStore(t *testing.T) {
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	for _, r := range rewrites {
		require.Contains(t, string(text), r.from, r.why)
	}
}
