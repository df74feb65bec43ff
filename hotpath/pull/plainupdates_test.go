package pull

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPlainUpdates compares what plainUpdates takes with what encoding/json makes of it.
func FuzzPlainUpdates(f *testing.F) {
	for _, s := range []string{
		`{"Updates":[{"ID":"06gvk862do000000000g","Lease":"x.1","NextState":"DELIVERED"}]}`,
		` { "Updates" : [ { "ID":"a" , "Delay" : 7 } , {"IncrementalTimeout":0,"Lease":""} ] } `,
		`{"Updates":[]}`, `{"Updates":[{}]}`, `{"Updates":[{"ID":"a"},]}`, `{"Updates":[{"Delay":01}]}`,
		`{"Updates":[{"Delay":-1}]}`,
		`{"Updates":[{"ID":"a","ID":"b"}]}`, `{"Updates":[{"id":"a"}]}`, `{"Updates":[{"ID":"\u0061"}]}`,
		`{"Updates":[{"ID":null}]}`,
		`{"Updates":[]}{}`, `{"Updates":[],"Updates":[{}]}`, `{"Updates":[{"Delay":1e3}]}`, `{"Updates":[{"ID":"a"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := plainUpdates(body)
		if !ok {
			return
		}
		var want struct{ Updates []update }
		require.NoError(t, json.Unmarshal(body, &want))
		require.Equal(t, want.Updates, got)
	})
}

func TestUpdatesThatAreNotPlainAreLeftToEncodingJSON(t *testing.T) {
	for _, body := range []string{`{"Updates":[{"id":"a"}]}`, `{"Updates":[{"ID":"\u0061"}]}`,
		`{"updates":[{"ID":"a","Lease":null}]}`, `{"Updates":[{"ID":"a","Delay":null}]}`} {
		_, plain := plainUpdates([]byte(body))
		require.False(t, plain, body)
		updates, err := parseUpdates([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, []update{{ID: "a"}}, updates, body)
	}
	many := `{"Updates":[` + strings.Repeat(`{},`, maxUpdates) + `{}]}`
	_, err := parseUpdates([]byte(many))
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
