package atrest_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/atrest"
)

func key(b byte) []byte { return append(bytes.Repeat([]byte{7}, 31), b) }

func TestWhatIsSealedIsOpenedInItsFieldAlone(t *testing.T) {
	k := atrest.NewKeys(key(1), nil)
	for _, text := range []string{"t", "secret-token", strings.Repeat("x", 16384), "\x00\xff", "\x01v1:"} {
		one, two := k.Seal(text, "a"), k.Seal(text, "a")
		require.NotEqual(t, one, two, "each has a nonce of its own")
		require.Len(t, one, len(text)+atrest.Overhead)
		if len(text) > 8 {
			require.NotContains(t, one, text)
		}
		require.True(t, atrest.Sealed(one))
		require.True(t, k.Current(one))
		plain, err := k.Open(one, "a")
		require.NoError(t, err)
		require.Equal(t, text, plain)
		_, err = k.Open(one, "b")
		require.ErrorIs(t, err, atrest.ErrDamaged)
		for i := range len(one) {
			if len(text) > 100 && i > 100 && i < len(one)-20 {
				continue
			}
			changed := []byte(one)
			changed[i] ^= 1
			plain, err := k.Open(string(changed), "a")
			if err == nil { // it looks like a plain text, which is none of ours
				require.False(t, atrest.Sealed(string(changed)))
				require.Equal(t, string(changed), plain)
			}
		}
		require.NotPanics(t, func() {
			for n := range min(len(one), 80) {
				_, _ = k.Open(one[:n], "a")
			}
		})
	}
	require.Empty(t, k.Seal("", "a"))
	require.True(t, k.Current(""))
}

func TestADigestStandsForOneToken(t *testing.T) {
	digest := atrest.Digest("token")
	require.True(t, atrest.Digested(digest))
	require.NotContains(t, digest, "token")
	require.Equal(t, digest, atrest.Digest(digest))
	require.Empty(t, atrest.Digest(""))
	for _, kept := range []string{"token", digest} {
		require.True(t, atrest.Matches([]byte("token"), kept))
		for _, wrong := range []string{"", "Token", "token ", "toke", digest[1:], strings.Repeat("x", 300)} {
			require.False(t, atrest.Matches([]byte(wrong), kept), wrong)
		}
		require.True(t, atrest.Same(kept, "token"))
		require.True(t, atrest.Same(kept, digest))
		require.False(t, atrest.Same(kept, "other"))
		require.False(t, atrest.Same(kept, ""))
	}
	require.False(t, atrest.Matches([]byte(digest), digest), "who has read the digest does not have the token")
	require.False(t, atrest.Matches(nil, ""))
	require.False(t, atrest.Matches(nil, atrest.Digest("")))
	require.Equal(t, "token", atrest.Shown("token"))
	require.Empty(t, atrest.Shown(digest))
	var none *atrest.Keys
	for _, k := range []*atrest.Keys{none, none.Digesting(), atrest.NewKeys(nil, key(1)).Digesting(),
		atrest.NewKeys(key(1), nil)} {
		require.Equal(t, "token", k.Kept("token"), "without a key, or where tokens are shown")
	}
	k := atrest.NewKeys(key(1), nil).Digesting()
	require.Equal(t, digest, k.Kept("token"))
	require.Equal(t, "token", k.Leaving().Kept("token"))
}

func TestThePreviousKeyOpensAndThePresentOneSeals(t *testing.T) {
	first, rotated, other := atrest.NewKeys(key(1), nil), atrest.NewKeys(key(2), key(1)), atrest.NewKeys(key(3), nil)
	var none *atrest.Keys
	old := first.Seal("secret", "a")
	plain, err := rotated.Open(old, "a")
	require.NoError(t, err)
	require.Equal(t, "secret", plain)
	require.False(t, rotated.Current(old))
	require.False(t, rotated.Current("secret"), "a plain text is not sealed yet")
	require.True(t, rotated.Current(rotated.Seal("secret", "a")))
	for _, k := range []*atrest.Keys{other, none, atrest.NewKeys(nil, key(9))} {
		_, err = k.Open(old, "a")
		require.ErrorIs(t, err, atrest.ErrKey)
		require.Contains(t, err.Error(), atrest.NameOf(old))
		require.NotContains(t, err.Error(), "secret")
		plain, err = k.Open("plain", "a")
		require.NoError(t, err)
		require.Equal(t, "plain", plain)
	}
	require.Equal(t, "secret", none.Seal("secret", "a"))
	require.True(t, none.Current("secret"))
	require.False(t, none.Current(old))
	given := rotated.Leaving()
	for _, sealed := range []string{old, rotated.Seal("secret", "a")} {
		plain, err = given.Open(sealed, "a")
		require.NoError(t, err)
		require.Equal(t, "secret", plain)
		require.False(t, given.Current(sealed))
	}
	require.Equal(t, "secret", given.Seal("secret", "a"))
	leaving := atrest.NewKeys(nil, key(1))
	require.Equal(t, "secret", leaving.Seal("secret", "a"))
	require.False(t, leaving.Current(old))
}
