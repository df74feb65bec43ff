package pages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/api"
)

// openapi.json has each route of the table and each error of the sources, and no others.
func TestTheDescriptionHasEachRouteAndEachError(t *testing.T) {
	var d struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
		Codes []struct {
			Status int    `json:"status"`
			Code   string `json:"code"`
		} `json:"x-codes"`
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "internal/feature/openapi/openapi.json")), &d))
	var want, got, codes []string
	for _, r := range api.Routes() {
		want = append(want, r.Method+" "+r.Path)
	}
	for path, methods := range d.Paths {
		for method := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
		}
	}
	for _, c := range d.Codes {
		codes = append(codes, fmt.Sprintf("%d %s", c.Status, c.Code))
	}
	slices.Sort(want)
	slices.Sort(got)
	slices.Sort(codes)
	require.Equal(t, want, got, "make openapi writes it; describe.go beside its program says what is new")
	require.Equal(t, problems(t), codes, "make openapi writes it")
}
