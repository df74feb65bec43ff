package pull

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// FuzzUpdates compares what is accepted with what encoding/json makes of it.
func FuzzUpdates(f *testing.F) {
	for _, s := range []string{
		`{"Updates":[{"ID":"06gvk862do000000000g","Lease":"x.1","NextState":"DELIVERED"}]}`,
		` { "Updates" : [ { "ID":"a" , "Delay" : 7 } , {"IncrementalTimeout":0,"Lease":""} ] } `,
		`{"Updates":[]}`, `{"Updates":[{}]}`, `{"Updates":[{"ID":"a"},]}`, `{"Updates":[{"Delay":01}]}`,
		`{"Updates":[{"Delay":-1}]}`, `{"Updates":[{"Timeout":9,"IncrementalTimeout":1}]}`,
		`{"Updates":[{"ID":"a","ID":"b"}]}`, `{"Updates":[{"id":"a"}]}`, `{"Updates":[{"ID":"\u0061\ud83d\ude00"}]}`,
		`{"Updates":[{"ID":null,"Failed":true}]}`,
		`{"Updates":[{"Response":"\u20ac","ResponseType":"a/b"},{"ResponseBase64":"eA=="},{"response":null},{"Response":[7]}]}`,
		`{"Updates":null}`, `{"Updates":[{"Delay":1e99}]}`, `[[[[`, `{"Updates":[{"ID":"\ud800"}]}`,
		`{"Updates":[{"IncrementalTimeout":-9223372036854775808}]} {}`, "{\"Updates\":[{\"ID\":\"\xff\"}]}",
		`{"Updates":[]}{}`, `{"Updates":[],"Updates":[{}]}`, `{"Updates":[{"Delay":1e3}]}`, `{"Updates":[{"ID":"a"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseUpdates(body)
		if err != nil {
			require.Equal(t, 400, problem.From(err).Status)
			return
		}
		require.LessOrEqual(t, len(got), maxUpdates)
		require.True(t, utf8.Valid(body))
		if slices.ContainsFunc(got, func(u update) bool { return u.misread }) {
			return // json has another error for it, of the whole body
		}
		var want struct{ Updates []update }
		require.NoError(t, json.Unmarshal(body, &want))
		require.Equal(t, want.Updates, got)
		slowly, err := anyUpdates(body)
		require.NoError(t, err)
		require.Equal(t, want.Updates, slowly)
	})
}

func TestUpdatesThatAreNotPlainAreReadInAnyForm(t *testing.T) {
	for _, body := range []string{`{"Updates":[{"id":"a"}]}`, `{"Updates":[{"ID":"\u0061"}]}`,
		`{"updates":[{"ID":"a","Lease":null}]}`, `{"Updates":[{"ID":"a","Delay":null}]}`} {
		_, plain := plainUpdates([]byte(body))
		require.False(t, plain, body)
		updates, err := parseUpdates([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, []update{{ID: "a"}}, updates, body)
	}
	many := `{"Updates":[` + strings.Repeat(`{},`, maxUpdates-1) + `{}]}`
	updates, err := parseUpdates([]byte(many))
	require.NoError(t, err)
	require.Len(t, updates, maxUpdates)
	_, err = parseUpdates([]byte(strings.Replace(many, `{}`, `{},{}`, 1)))
	require.ErrorContains(t, err, "at most")
}

// An update of 100 jobs as clients write it, and in a form that few use.
func BenchmarkParseUpdates(b *testing.B) {
	for name, form := range map[string]string{
		"usual": `{"ID":"06gvk862do0000000%03d","Lease":"4vk3q0p1m2n4b5c6.%d","NextState":"DELIVERED"}`,
		"rare":  `{"id":"06gvk862do0000000%03d","lease":"4vk3q0p1m2n4b5c6.%d","NextState":"DEAD","Delay":null}`,
	} {
		b.Run(name, func(b *testing.B) {
			var entries []string
			for i := range 100 {
				entries = append(entries, fmt.Sprintf(form, i, i))
			}
			body := []byte(`{"Updates":[` + strings.Join(entries, ",") + `]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parseUpdates(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
