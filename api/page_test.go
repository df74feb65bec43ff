package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestPageParameters(t *testing.T) {
	for query, want := range map[string]pageQuery{
		"":                             {Size: 25},
		"size=1":                       {Size: 1},
		"size=100":                     {Size: 100},
		"size=101":                     {Size: 100},
		"size=99999999999999999999999": {Size: 100},
		"first=a:b":                    {Size: 25, First: "a:b"},
		"first=":                       {Size: 25},
		"unknown=1&unknown=2":          {Size: 25},
		"first=x&size=007":             {Size: 7, First: "x"},
	} {
		q, err := parsePage(query, defaultPage, maxPage)
		require.NoError(t, err, query)
		q.keep = nil
		require.Equal(t, want, q, query)
	}
}

func TestBadPageParametersAreRefused(t *testing.T) {
	for query, code := range map[string]string{
		"size=0": "invalid_size", "size=-1": "invalid_size", "size=": "invalid_size", "size=ten": "invalid_size",
		"size=1.5":  "invalid_size",
		"size=%2B1": "invalid_size", "size=0x10": "invalid_size", "size=1&size=2": "invalid_query",
		"size=%zz": "invalid_query", "a;b": "invalid_query",
		"first=a%2Fb": "invalid_id", "first=%27+OR+1=1": "invalid_id", "first=" + strings.Repeat("x", 256): "invalid_id",
		"first=%25":                    "invalid_id",
		"statusChangedSince=yesterday": "invalid_date", "statusChangedSince=": "invalid_date",
		"statusChangedSince=2026-01-01": "invalid_date",
		"statusChangedSince=1763658000": "invalid_date",
	} {
		_, err := parsePage(query, defaultPage, maxPage)
		require.Equal(t, code, codeOf(t, err), query)
	}
}

func TestTheNextLinkCarriesFiltersAndSize(t *testing.T) {
	q, err := parsePage("size=500&statusChangedSince=2026-01-31T10:00:00+02:00&first=a&junk=1", defaultPage, maxPage)
	require.NoError(t, err)
	require.Equal(t, "/channel/c/messages?first=m2&size=100&statusChangedSince=2026-01-31T08%3A00%3A00Z",
		q.next("/channel/c/messages", "m2").Next)
}

func TestSinceUnderstandsAPlusThatWasNotEncoded(t *testing.T) {
	for _, query := range []string{"statusChangedSince=2026-01-31T10:00:00%2B02:00",
		"statusChangedSince=2026-01-31T10:00:00+02:00", "statusChangedSince=2026-01-31T08:00:00Z"} {
		q, err := parsePage(query, defaultPage, maxPage)
		require.NoError(t, err)
		require.Equal(t, time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), *q.Since)
	}
}

func TestFirstIDAtIsTheFirstMillisecondNotBefore(t *testing.T) {
	at := time.UnixMilli(1_763_658_000_123)
	require.Equal(t, ident.AtMillis(1_763_658_000_123), firstIDAt(at))
	require.Equal(t, ident.AtMillis(1_763_658_000_124), firstIDAt(at.Add(time.Nanosecond)))
	require.Equal(t, ident.ID{}, firstIDAt(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.Positive(t, firstIDAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)).Compare(ident.AtMillis(1<<40)))
}

func FuzzPage(f *testing.F) {
	for _, s := range []string{"size=1&first=a", "size=-1", "first=%00", "statusChangedSince=2026-01-31T10:00:00Z", "&&",
		"size=1;first=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := parsePage(query, defaultPage, maxPage)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, q.Size, 1)
		require.LessOrEqual(t, q.Size, maxPage)
		_, link, _ := strings.Cut(q.next("/x", "id").Next, "?")
		again, err := parsePage(link, defaultPage, maxPage)
		require.NoError(t, err, "a link of ours can be followed")
		require.Equal(t, "id", again.First)
		require.Equal(t, q.Since, again.Since)
		if q.keep.Has("size") {
			require.Equal(t, q.Size, again.Size)
		}
		if q.Since != nil {
			firstIDAt(*q.Since)
		}
	})
}
