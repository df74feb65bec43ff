package openapi

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// first returns the names of what a search finds first of each kind.
func first(query string) map[string]string {
	names := map[string]string{}
	for _, k := range search(query) {
		names[k.Name] = k.Hits[0].Name
	}
	return names
}

func TestASearchFindsRoutesTypesMembersAndErrors(t *testing.T) {
	require.Equal(t, "lease_lost", first("lease_lost")["Errors"])
	require.Equal(t, "lease_lost", first("LEASE lost")["Errors"], "words in any case, parts of names")
	require.Equal(t, "POST /channel/{channel}/broadcast", first("broadcast")["Routes"])
	require.Equal(t, "POST /channel/{channel}/broadcast", first("postChannelBroadcast")["Routes"], "by operationId")
	require.Contains(t, first("X-Broker-Message-TTL")["Routes"], "/channel/{channel}/", "by a header")
	require.Equal(t, "Job", first("job")["Types"])
	require.True(t, strings.HasSuffix(first("lease")["Members"], ".Lease"), "a name before a part of a name")
	require.Empty(t, search("xyzzy"))
	require.Empty(t, search("lease xyzzy"), "every word counts")
	for _, k := range search("e") {
		require.LessOrEqual(t, len(k.Hits), maxHits)
		all := 0
		for _, of := range index() {
			if of.Name == k.Name {
				for _, h := range of.Hits {
					if strings.Contains(h.all, "e") {
						all++
					}
				}
			}
		}
		require.Equal(t, all, len(k.Hits)+k.More, k.Name)
	}
}

// Each result leads to a place that there is, and each thing is found by its own name.
func TestResultsLeadToTheirPlaces(t *testing.T) {
	ids := map[string]bool{}
	for page, text := range map[string]string{"/docs": string(renderRoutes()), "/docs/errors": string(renderErrors())} {
		for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			ids[page+"#"+m[1]] = true
		}
	}
	total := 0
	for _, k := range index() {
		require.NotEmpty(t, k.Hits, k.Name)
		for _, h := range k.Hits {
			total++
			require.True(t, ids[h.Link], h.Link)
			if utf8.RuneCountInString(h.Name) <= MaxQuery {
				require.NotEmpty(t, first(h.Name)[k.Name], h.Name)
			}
		}
	}
	require.Greater(t, total, 800)
}

func TestTheWordsOfASearchAreShownAsText(t *testing.T) {
	for _, hostile := range []string{`"><script>alert(1)</script>`, `{{.}}`, `' onfocus=alert(1) x='`, "\x00\xff\u202e",
		`</title></style><img src=x onerror=alert(1)>`} {
		page := string(render("search.html", struct {
			Query string
			Kinds []kind
		}{hostile, search(hostile)}))
		require.NotRegexp(t, `<script|<img|</title></style| on[a-z]+=alert\(1\)>|ZgotmplZ`, page)
		require.Contains(t, page, "Nothing has all these words")
		require.Equal(t, 1, strings.Count(page, "</title>"))
		require.NotNil(t, Found(hostile))
	}
}
