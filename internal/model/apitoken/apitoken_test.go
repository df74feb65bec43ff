package apitoken_test

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitoken"
)

func TestATokenHasARecognisableForm(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		token, id := apitoken.New()
		require.Regexp(t, `^pst_[a-z2-7]{10}_[a-z2-7]{59}$`, token)
		require.Len(t, token, apitoken.Size)
		got, ok := apitoken.ID([]byte(token))
		require.True(t, ok)
		require.Equal(t, id, string(got))
		require.False(t, seen[token] || seen[id])
		seen[token], seen[id] = true, true
	}
}

func TestATokenWithAnyOtherLetterIsNone(t *testing.T) {
	token, _ := apitoken.New()
	for i := range token {
		for _, other := range []byte{'a', 'b', 'A', '_', 0, 0xff} {
			changed := []byte(token)
			if changed[i] == other {
				continue
			}
			changed[i] = other
			_, ok := apitoken.ID(changed)
			require.False(t, ok, "letter %d", i)
		}
	}
	for _, text := range []string{"", "pst_", token[1:], token + "a", token[:len(token)-1], " " + token} {
		_, ok := apitoken.ID([]byte(text))
		require.False(t, ok, text)
	}
}

func TestADigestIsOfOneTokenAndOneKey(t *testing.T) {
	a, _ := apitoken.New()
	b, _ := apitoken.New()
	one, two, three := key(1), key(2), key(3)
	plain := apitoken.Keys{}.Digest([]byte(a))
	first := apitoken.NewKeys(one, nil).Digest([]byte(a))
	require.Empty(t, plain.KeyID)
	require.NotEqual(t, plain.Sum, first.Sum)
	rotated := apitoken.NewKeys(two, one)
	for _, d := range []apitoken.Digest{plain, first, rotated.Digest([]byte(a))} {
		require.True(t, rotated.Matches([]byte(a), d), "tokens of before are taken while the previous key is there")
		require.True(t, rotated.Knows(d.KeyID))
		require.False(t, rotated.Matches([]byte(b), d))
	}
	over := apitoken.NewKeys(three, two)
	require.False(t, over.Matches([]byte(a), first), "and no longer")
	require.False(t, over.Knows(first.KeyID))
	require.True(t, over.Matches([]byte(a), plain))
	require.False(t, apitoken.Keys{}.Matches([]byte(a), first))
}

func key(first byte) []byte {
	k := bytes.Repeat([]byte{7}, apitoken.KeySize)
	k[0] = first
	return k
}

func TestAKeyIs32RandomBytes(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(key(1))
	got, err := apitoken.ParseKey(good)
	require.NoError(t, err)
	require.Equal(t, key(1), got)
	_, err = apitoken.ParseKey(good[:len(good)-1])
	require.NoError(t, err, "the = at the end may be missing")
	for _, wrong := range []string{"", "secret", good[:20], good + good, "!" + good[1:],
		base64.StdEncoding.EncodeToString(key(1)[:31]), base64.StdEncoding.EncodeToString(append(key(1), 1)),
		base64.StdEncoding.EncodeToString(make([]byte, 32))} {
		_, err := apitoken.ParseKey(wrong)
		require.Error(t, err, wrong)
		if len(wrong) > 4 {
			require.NotContains(t, err.Error(), wrong, "it is a secret")
		}
	}
}

func TestComparingATokenAllocatesLittle(t *testing.T) {
	token, _ := apitoken.New()
	text := []byte(token)
	require.Zero(t, testing.AllocsPerRun(100, func() { apitoken.ID(text) }))
}
