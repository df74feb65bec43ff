package signed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sign(at time.Time, body string) (t, v string) {
	mac := hmac.New(sha256.New, []byte("key"))
	t = strconv.FormatInt(at.Unix(), 10)
	mac.Write([]byte(t + "." + body))
	return "t=" + t, "v1=" + hex.EncodeToString(mac.Sum(nil))
}

func TestASignatureIsOfBodyAndTime(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	at, v := sign(now, "body")
	old, oldV := sign(now.Add(-301*time.Second), "body")
	for header, want := range map[string]error{at + "," + v: nil, at + ", " + v: nil, v + "," + at: nil,
		at + "," + strings.ToUpper(v[:3]) + v[3:]: ErrMalformed, "": ErrMalformed, at: ErrMalformed, v: ErrMalformed,
		at + "," + v + "," + v: ErrMalformed, at + "," + at: ErrMalformed, "t=x," + v: ErrMalformed,
		at + ",v1=zz":                ErrMalformed,
		"t=9223372036854775808," + v: ErrMalformed, old + "," + oldV: ErrMismatch, old + "," + v: ErrMismatch,
		"t=-9223372036854775808," + v: ErrMismatch} {
		require.ErrorIs(t, Check([]byte(header), []byte("key"), []byte("body"), now, Tolerance), want, header)
	}
	require.ErrorIs(t, Check([]byte(at+","+v), []byte("key"), []byte("Body"), now, Tolerance), ErrMismatch)
	require.ErrorIs(t, Check([]byte(at+","+v), []byte("other"), []byte("body"), now, Tolerance), ErrMismatch)
}
