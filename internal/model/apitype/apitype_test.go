package apitype_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

// Every field has a tag: no member depends on the name of a field in Go.
func TestEveryFieldHasATag(t *testing.T) {
	types := 0
	for _, r := range apitype.Routes() {
		for _, a := range append(r.Answers, apitype.Answer{Body: r.Request},
			apitype.Answer{Body: apitype.Body{Value: apitype.Problem{}}}) {
			if a.Value == nil {
				continue
			}
			types++
			for member := range strictjson.Of(a.Value) {
				owner, name, _ := strings.Cut(member, ".")
				require.True(t, owner != "" && name != "", "%T has a field without a tag: %q", a.Value, member)
			}
		}
	}
	require.Greater(t, types, 20)
}

func TestFormFieldsAreTexts(t *testing.T) {
	for _, r := range apitype.Routes() {
		if r.Request.Media != apitype.MediaForm {
			continue
		}
		for _, field := range reflect.VisibleFields(reflect.TypeOf(r.Request.Value)) {
			typ := field.Type
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			require.Equal(t, reflect.String, typ.Kind(), field.Name)
			require.NotEmpty(t, field.Tag.Get("form"), field.Name)
		}
	}
}

func TestATimeHasMillisecondsInUTC(t *testing.T) {
	for text, at := range map[string]time.Time{
		`"1970-01-01T00:00:00.000Z"`: time.Unix(0, 999_999),
		`"2026-01-31T15:04:05.100Z"`: time.Date(2026, 1, 31, 17, 4, 5, 100e6, time.FixedZone("", 7200)),
	} {
		got, err := json.Marshal(apitype.Time{Time: at})
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		var back apitype.Time
		require.NoError(t, json.Unmarshal(got, &back))
		require.Equal(t, at.UTC().Truncate(time.Millisecond), back.Time)
	}
}

func TestTimesAreReadAsRFC3339SaysOnly(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-31T08:00:00Z": "2026-01-31T08:00:00Z", "2028-02-29T08:00:00.123456789Z": "2028-02-29T08:00:00.123456789Z",
		"2026-01-31T08:00:00+14:00": "2026-01-30T18:00:00Z", "2026-01-31T08:00:00-00:00": "2026-01-31T08:00:00Z",
	} {
		got, err := apitype.ParseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.UTC().Format(time.RFC3339Nano))
	}
	for _, text := range []string{
		"", "2026-01-31", "2026-01-31T08:00:00", "2026-01-31T8:00:00Z", "2026-01-31 08:00:00Z", "2026-01-31t08:00:00z",
		"2026-01-31T08:00:00,5Z", "2026-01-31T08:00:00.Z",
		"2026-01-31T08:00:00+24:00", "2026-01-31T08:00:00+01:60", "2026-01-31T08:00:00+0100", "2026-02-29T08:00:00Z",
		"2026-01-31T24:00:00Z", "+2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z\n",
	} {
		_, err := apitype.ParseTime(text)
		require.Error(t, err, text)
	}
}
