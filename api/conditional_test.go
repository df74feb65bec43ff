package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func requestWith(header ...string) *fasthttp.RequestCtx {
	rc := &fasthttp.RequestCtx{}
	for i := 0; i < len(header); i += 2 {
		rc.Request.Header.Add(header[i], header[i+1])
	}
	return rc
}

func TestUnmodifiedSinceUnderstandsTheThreeDateFormsOfHTTP(t *testing.T) {
	want := time.Date(2026, 11, 20, 16, 5, 9, 0, time.UTC)
	for _, text := range []string{"Fri, 20 Nov 2026 16:05:09 GMT", "Friday, 20-Nov-26 16:05:09 GMT",
		"Fri Nov 20 16:05:09 2026"} {
		got, err := unmodifiedSince(requestWith("If-Unmodified-Since", text))
		require.NoError(t, err)
		require.True(t, want.Equal(got), text)
	}
	got, err := unmodifiedSince(requestWith())
	require.NoError(t, err)
	require.True(t, got.IsZero())
}

func TestUnreadablePreconditionsAreRefused(t *testing.T) {
	good := "Fri, 20 Nov 2026 16:05:09 GMT"
	for _, header := range [][]string{{"yesterday"}, {""}, {"2026-11-20T16:05:09Z"}, {good, good},
		{"Mon, 01 Jan 0001 00:00:00 GMT"}} {
		var pairs []string
		for _, value := range header {
			pairs = append(pairs, "If-Unmodified-Since", value)
		}
		_, err := unmodifiedSince(requestWith(pairs...))
		require.Equal(t, "invalid_date", codeOf(t, err), "%q", header)
	}
}

func TestNotModified(t *testing.T) {
	at := time.Date(2026, 11, 20, 16, 5, 9, 600_000_000, time.UTC)
	etag := `"abc"`
	date := at.Format(http.TimeFormat)
	for name, c := range map[string]struct {
		header []string
		byDate bool
		want   bool
	}{
		"nothing asked": {nil, true, false},
		"same date":     {[]string{"If-Modified-Since", date}, true, true},
		"later date": {[]string{"If-Modified-Since", at.Add(time.Hour).Format(http.TimeFormat)},
			true, true},
		"earlier date": {[]string{"If-Modified-Since", at.Add(-time.Second).Format(http.TimeFormat)},
			true, false},
		"a date is not enough":               {[]string{"If-Modified-Since", date}, false, false},
		"a date that is none":                {[]string{"If-Modified-Since", "soon"}, true, false},
		"the tag":                            {[]string{"If-None-Match", `"abc"`}, false, true},
		"the tag in a list":                  {[]string{"If-None-Match", `"x", W/"abc"`}, false, true},
		"any tag":                            {[]string{"If-None-Match", "*"}, false, true},
		"another tag":                        {[]string{"If-None-Match", `"x"`}, false, false},
		"another tag counts before the date": {[]string{"If-None-Match", `"x"`, "If-Modified-Since", date}, true, false},
	} {
		require.Equal(t, c.want, notModified(requestWith(c.header...), etag, at, c.byDate), name)
	}
}

func FuzzDates(f *testing.F) {
	f.Add("Fri, 20 Nov 2026 16:05:09 GMT")
	f.Add("Fri Nov 20 16:05:09 2026")
	f.Add("")
	f.Add("W/\"abc\", *")
	f.Fuzz(func(t *testing.T, text string) {
		rc := requestWith("If-Unmodified-Since", text, "If-Modified-Since", text)
		if at, err := unmodifiedSince(rc); err == nil {
			require.False(t, at.IsZero(), "a zero time would mean no precondition")
		}
		notModified(rc, `"abc"`, time.Unix(1, 0), true)
		notModified(requestWith("If-None-Match", text), `"abc"`, time.Unix(1, 0), true)
	})
}
