package credentials

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func headers(pairs ...string) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestTheBearerTokenIsReadFromAuthorizationInAnyCase(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer t": "t", "bearer t": "t", "BEARER \t t ": "t", "Bearer a,b=~!": "a,b=~!",
		"Basic dTpw": "", "Bearert": "", "Bear": "", "t": "", "Negotiate Bearer t": "", "": "",
	} {
		token, err := Bearer(headers("Authorization", value))
		require.NoError(t, err, value)
		require.Equal(t, want, string(token), value)
	}
	for _, value := range []string{"Bearer", "Bearer ", "bearer a b", "Bearer a, Basic b", "Bearer ä", "Bearer \x7f"} {
		token, err := Bearer(headers("Authorization", value))
		require.ErrorContains(t, err, "token_missing", value)
		require.Nil(t, token)
	}
}

func TestTwoAuthorizationsAreRefusedWhereOneIsABearer(t *testing.T) {
	_, err := Bearer(headers("Authorization", "Basic dTpw", "authorization", "Bearer t"))
	require.ErrorContains(t, err, "token_missing")
	_, err = Bearer(headers("Authorization", "Bearer t", "Authorization", "Bearer t"))
	require.ErrorContains(t, err, "token_missing")
	token, err := Bearer(headers("Authorization", "Basic dTpw", "Authorization", "Digest x"))
	require.NoError(t, err)
	require.Nil(t, token)
}

func TestTheBearerStandsForTheTokensThatARequestLacks(t *testing.T) {
	for _, c := range []struct {
		name           string
		h              *fasthttp.RequestHeader
		channel, owner string
	}{
		{"both", headers(Channel, "c", Producer, "p", "Authorization", "Bearer"), "c", "p"},
		{"no owner", headers(Channel, "c", "Authorization", "Bearer t"), "c", "t"},
		{"no channel", headers(Producer, "p", "Authorization", "Bearer t"), "t", "p"},
		{"neither", headers(Consumer, "k", "Authorization", "Bearer t"), "t", "t"},
		{"an empty header is none", headers(Channel, "", Producer, "p", "Authorization", "Bearer t"), "t", "p"},
		{"no bearer", headers(Channel, "c", "Authorization", "Basic x"), "c", ""},
	} {
		channel, owner, err := Both(c.h, Producer)
		require.NoError(t, err, c.name)
		require.Equal(t, [2]string{c.channel, c.owner}, [2]string{string(channel), string(owner)}, c.name)
	}
	_, _, err := Both(headers(Channel, "c", "Authorization", "Bearer"), Producer)
	require.ErrorContains(t, err, "token_missing")
	token, err := Of(headers(Admin, "a", "Authorization", "Bearer t"), Admin)
	require.NoError(t, err)
	require.Equal(t, "a", string(token))
}

func TestReadingTokensAllocatesNothing(t *testing.T) {
	own := headers(Channel, "c", Producer, "p")
	bearer := headers("Authorization", "Bearer t")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _, _ = Both(own, Producer)
		_, _, _ = Both(bearer, Producer)
	}))
}
