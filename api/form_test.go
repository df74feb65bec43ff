package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

func codeOf(t *testing.T, err error) string {
	t.Helper()
	var p *problem.Problem
	require.ErrorAs(t, err, &p)
	return p.Code
}

func TestAFormKeepsEveryFieldOnce(t *testing.T) {
	f, err := parseForm([]byte("name=My+Channel&token=a%2Bb&other=%C3%A4&empty="), []string{"name", "token", "other",
		"empty", "absent"})
	require.NoError(t, err)
	require.Equal(t, form{"name": "My Channel", "token": "a+b", "other": "ä", "empty": ""}, f)
}

func TestBadFormsAreRefusedWithoutQuotingThem(t *testing.T) {
	for body, code := range map[string]string{
		"token=s3cret%zz":                      "invalid_form",
		"token=s3cret;name=x":                  "invalid_form",
		"token=s3cret&token=s3cret":            "duplicate_field",
		"s3cret=" + strings.Repeat("x", 1<<16): "body_too_large",
	} {
		_, err := parseForm([]byte(body), producerFields)
		require.Equal(t, code, codeOf(t, err))
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := parseForm([]byte("name=x&token=s3cret&token=s3cret"), producerFields)
	require.Contains(t, err.Error(), "The form field token ")
	for _, body := range []string{"name=x&token=s3cret%zz", "token=s3cret;name=x", "name=x&token=%"} {
		_, err := parseForm([]byte(body), producerFields)
		require.Contains(t, err.Error(), "The form field token is not well encoded.", body)
	}
	for _, body := range []string{"%zz=s3cret", "s3cret;", "a%zz=1&name=x"} {
		_, err := parseForm([]byte(body), producerFields)
		require.Contains(t, err.Error(), "The form is not well encoded.", body)
	}
}

func TestAnUnknownFieldIsNamedWithTheNearestKnownOne(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	for body, want := range map[string]string{
		"callbackURL=http://s3cret": `"callbackURL", which this route does not take. Did you mean callbackUrl? `,
		"callback_url=s3cret":       "Did you mean callbackUrl? ",
		"callback=s3cret":           "Did you mean callbackUrl? ",
		"url=s3cret":                "Did you mean callbackUrl? ",
		"tokne=s3cret":              `"tokne", which this route does not take. Did you mean token? `,
		"TOKEN=s3cret":              "Did you mean token? ",
		"nmae=s3cret&token=s3cret":  "Did you mean name? ",
		"typ=pull":                  "Did you mean type? ",
		"protokol=h2":               "Did you mean protocol? ",
		"callbackUrl=http://h/?a=1&b=s3cret": `"b", which this route does not take. Its fields are ` +
			strings.Join(consumerFields, ", ") + `. An ampersand in a value is written %26.`,
		"Name+=s3cret":          `"Name ", which this route does not take. Did you mean name? `,
		"=s3cret":               `"", which`,
		"\xff\x00%0D%0A=s3cret": `"\xff\x00\r\n", which`,
		long + "=s3cret":        `"` + long[:maxShownName] + `...", which this route does not take. Its fields`,
	} {
		_, err := parseForm([]byte(body), consumerFields)
		require.Equal(t, "unknown_field", codeOf(t, err), body)
		require.Contains(t, err.Error(), want, body)
		require.NotContains(t, err.Error(), "s3cret")
		require.Less(t, len(err.Error()), 700)
	}
	for range 20 {
		_, err := parseForm([]byte("d=1&c=1&b=1&a=1"), consumerFields)
		require.Contains(t, err.Error(), `"a"`, "the first one by name")
	}
}

func TestNamesAndTokensHaveLimits(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, bad := range []string{long, "a\x00b", "a\nb", "\xff\xfe"} {
		_, err := form{"name": bad}.name()
		require.Equal(t, "invalid_name", codeOf(t, err))
	}
	for _, bad := range []string{long, "a b", " ", "a\r\nX-Evil: 1", "tökén", "\x7f"} {
		_, err := form{"token": bad}.token()
		require.Equal(t, "invalid_token", codeOf(t, err))
	}
	name, err := form{"name": "Größe 漢字 'quoted' %_"}.name()
	require.NoError(t, err)
	require.Equal(t, "Größe 漢字 'quoted' %_", *name)
	token, err := form{"token": long[:255]}.token()
	require.NoError(t, err)
	require.Equal(t, long[:255], *token)
}

func TestAnEmptyTokenOrNameIsNone(t *testing.T) {
	for _, f := range []form{{}, {"name": "", "token": ""}} {
		name, err := f.name()
		require.NoError(t, err)
		require.Nil(t, name)
		token, err := f.token()
		require.NoError(t, err)
		require.Nil(t, token)
	}
}

func TestCallbacksAreAbsoluteHTTPURLsWithoutCredentials(t *testing.T) {
	for _, good := range []string{"http://a", "https://a.example:8443/x?y=z", "http://[::1]:80/", "HTTP://A/",
		"http://10.0.0.1/%20"} {
		require.NoError(t, checkCallback(good), good)
	}
	for _, bad := range []string{
		"x", "/relative", "//host/x", "ftp://a", "file:///etc/passwd", "gopher://a", "http:", "http:a", "http://",
		"http://:80", "http:///x",
		"http://u:s3cret@a/", "http://s3cret@a/", "http://a/#s3cret", "http://a b/", "http://a/\r\nX: s3cret",
		"http://a:port/s3cret",
		"http://[::1/s3cret", "http://a/%zz", "javascript:s3cret", "http://ä/", "http://a/" + strings.Repeat("x", 2048),
	} {
		err := checkCallback(bad)
		require.Equal(t, "invalid_callback", codeOf(t, err), bad)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func FuzzForm(f *testing.F) {
	for _, s := range []string{"name=a&token=b", "name=%", "a;b", "type=pull&type=pull", "token=%0d%0a", "name=%ff", "=&=",
		"protocol=h2"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		parsed, err := parseForm(body, consumerFields)
		if err != nil {
			return
		}
		if name, err := parsed.name(); err == nil && name != nil {
			require.NotEmpty(t, *name)
			require.LessOrEqual(t, len(*name), maxNameBytes)
		}
		if token, err := parsed.token(); err == nil && token != nil {
			require.NotEmpty(t, *token)
			require.True(t, visibleASCII(*token))
		}
		_, _ = parsed.consumerType()
		_, _ = parsed.protocol()
		if raw := parsed.field("callbackUrl"); raw != nil && checkCallback(*raw) == nil {
			require.True(t, strings.HasPrefix(strings.ToLower(*raw), "http"))
		}
	})
}

func TestRoutesWithoutAFormRefuseItsFields(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.consumer("k", "pull")
	for _, path := range []string{"/channel/c", "/channel/c/consumer/k"} {
		for _, verb := range []string{"/pause", "/resume"} {
			w.do("POST", path+verb, "until=tomorrow", formHeader).problem(400, "unknown_field")
			require.Equal(t, "ACTIVE", w.get(path).is(200).json()["State"])
		}
		w.do("POST", path+"/pause", "{}", "Content-Type: application/json").is(200)
		w.do("POST", path+"/resume", "", formHeader).is(200)
	}
	w.do("POST", "/channel/c/consumer/k/revive", "until=tomorrow", formHeader).problem(400, "unknown_field")
}
