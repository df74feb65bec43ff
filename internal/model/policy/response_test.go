package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadersOfAResponseAreKeptByListAndNeverSecrets(t *testing.T) {
	h := defaultResponseHeaders
	for _, name := range []string{"Content-Type", "content-encoding", "X-Result", "x-a"} {
		require.True(t, h.Keeps(name), name)
	}
	for _, name := range []string{"Set-Cookie", "X-Auth-Token", "X-Api-Key", "X-CSRF", "Date", "X-Broker-Consumer-ID",
		"Authorization", "X-Session-Id"} {
		require.False(t, h.Keeps(name), name)
	}
	own, err := parseHeaderNames("ETag, Last-*")
	require.NoError(t, err)
	require.True(t, own.Keeps("Etag"))
	require.True(t, own.Keeps("Last-Modified"))
	require.True(t, own.Keeps("Content-Type"))
	require.False(t, own.Keeps("X-A"))
}

func TestOnlyTheStatusesOfTheListAccept(t *testing.T) {
	p := Policy{Async: true, AsyncStatus: "202,204"}
	require.True(t, p.Accepted(202))
	require.True(t, p.Accepted(204))
	require.False(t, p.Accepted(200))
	p.Async = false
	require.False(t, p.Accepted(202))
}

func TestASenderIsARecordLikeAnyOther(t *testing.T) {
	record, err := MergeSender("", map[string]string{"replyUrl": "https://x/replies", "signingSecret": "generate"})
	require.NoError(t, err)
	require.Equal(t, ReplyURL("https://x/replies"), SenderOf(record).ReplyURL)
	require.NotEmpty(t, SenderOf(record).SigningSecret)
	require.Equal(t, "whsec_***", ShowSender(record)[1].Value)
	record, err = MergeSender(record, map[string]string{"replyUrl": ""})
	require.NoError(t, err)
	require.Empty(t, SenderOf(record).ReplyURL)
	for _, bad := range []string{"x", "/replies", "ftp://x", "http://u:s3cret@x/", "http://x/#a"} {
		_, err := MergeSender("", map[string]string{"replyUrl": bad})
		var f *FieldError
		require.ErrorAs(t, err, &f, bad)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
