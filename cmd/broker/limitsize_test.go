package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// limit and size are one parameter of lists and claims, and a link goes on with the name it came with.
func TestLimitAndSizeAreOneParameter(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		s := p.stage(t, "a", "b", "c")
		for _, name := range []string{"limit", "size"} {
			r := s.do("GET", s.path("/consumers?", name, "=2"), "")
			require.Contains(t, r.body, name+"=2")
			require.Len(t, r.json(t)["Result"], 2)
			next, _ := r.json(t)["Pages"].(map[string]any)["next"].(string)
			require.Len(t, s.do("GET", next, "").json(t)["Result"], 1)
			requireProblem(t, s.do("GET", s.path("/consumers?", name, "=0"), ""), 400, "invalid_size")
		}
		requireProblem(t, s.do("GET", s.path("/consumers?limit=2&size=2"), ""), 400, "invalid_query")
		for range 5 {
			s.publish("x")
		}
		s.awaitQueued("a", 5)
		require.Len(t, s.queued("a", "size=2"), 2)
		claim := func(query, body string) reply {
			return s.do("POST", s.path("/consumer/a/claim", query), body, consumerTokens("a")...)
		}
		require.Len(t, claim("?size=1", "").json(t)["Result"], 1)
		require.Len(t, claim("", `{"size":1}`).json(t)["Result"], 1)
		require.Len(t, claim("", `{"Size":1}`).json(t)["Result"], 1)
		requireProblem(t, claim("?size=1&limit=1", ""), 400, "invalid_query")
		requireProblem(t, claim("?size=1", `{"Limit":1}`), 400, "duplicate_field")
		requireProblem(t, claim("?limit=1", `{"Size":1}`), 400, "duplicate_field")
		requireProblem(t, claim("", `{"Size":1,"Limit":1}`), 400, "invalid_body")
		requireProblem(t, claim("?size=0", ""), 400, "invalid_limit")
		requireProblem(t, s.do("GET", s.path("/consumer/a/queued-jobs?size=1&limit=1"), "", consumerTokens("a")...), 400,
			"invalid_query")

		list := s.do("GET", s.path("/scheduled-messages?limit=1"), "").json(t)
		require.Equal(t, list["Result"], list["result"])
		require.Equal(t, list["Pages"], list["pages"])
		require.NotNil(t, list["Result"])
	})
}
