package openapi

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each route that a page can call has a form, with each of its parameters.
func TestThePageToTryHasAFormForEachRoute(t *testing.T) {
	page, routes := string(renderTry()), string(renderRoutes())
	n := 0
	for _, a := range areas() {
		for _, r := range a.Routes {
			_, rest, found := strings.Cut(page, `<details id="`+r.ID+`">`)
			require.Equal(t, r.Access != "dashboard" && r.Access != "sqs", found, r.ID)
			require.Equal(t, found, strings.Contains(routes, `href="/docs/try#`+r.ID+`"`), r.ID)
			if !found {
				continue
			}
			n++
			form, _, _ := strings.Cut(rest, "</details>")
			require.Contains(t, form, `data-method="`+r.Method+`" data-path="`+r.Path+`"`)
			for _, p := range r.Parameters {
				require.Contains(t, form, `name="`+p.In+":"+p.Name+`"`, r.ID)
			}
			require.Equal(t, r.Body != nil, strings.Contains(form, "<textarea"), r.ID)
			destroys := r.Method == "DELETE" || r.ID == "postChannelConsumerPurge" || strings.HasSuffix(r.ID, "DlqDelete")
			require.Equal(t, destroys, strings.Contains(form, `name="mean" required`), r.ID)
		}
	}
	require.Greater(t, n, 80)
	require.Contains(t, page, `data-path="/channel/{channel}/broadcast" data-needs="channel producer"`)
	require.Contains(t, page, "name=The&#43;shop&amp;token=shop-secret", "an example of a form as a body has it")
}

// Nothing of the page is inline, and until its script runs no form can be sent: the browser would put tokens into an
// address.
func TestThePageToTryHasNothingInline(t *testing.T) {
	page := string(renderTry())
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.Contains(t, page, `<script src="/docs/try.js"></script>`)
	require.NotRegexp(t, `<img|<link|<iframe| style=| on[a-z]+=|javascript:|ZgotmplZ`, page)
	require.Equal(t, strings.Count(page, "<form "), strings.Count(page, "<button disabled>Send</button>"))
	require.Contains(t, tryPolicy, "form-action 'none'")
	require.Contains(t, tryPolicy, "connect-src 'self'")
	require.NotContains(t, tryPolicy, "unsafe")
	for _, never := range []string{"eval(", "innerHTML", "insertAdjacentHTML", "new Function", "localStorage",
		"sessionStorage", "document.cookie", "indexedDB"} {
		require.NotContains(t, script, never)
	}
}

// All own JavaScript of the pages together has fewer than 300 lines.
func TestTheScriptsOfThePagesAreSmall(t *testing.T) {
	dashboard, err := os.ReadFile("../ui/assets/keys.js")
	require.NoError(t, err)
	require.Less(t, strings.Count(script+string(dashboard), "\n"), 300)
	require.Less(t, Try().Size(), 40_000)
}
