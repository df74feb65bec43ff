package publish

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sign(secret, body string, at int64) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%d.%s", at, body)
	return fmt.Sprintf("t=%d,v1=%s", at, hex.EncodeToString(mac.Sum(nil)))
}

func TestAPublishIsSignedWithTheSecretOfItsProducer(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for header, want := range map[string]error{
		sign("s", "body", now.Unix()):       nil,
		sign("s", "body", now.Unix()-300):   nil,
		sign("s", "body", now.Unix()+300):   nil,
		sign("s", "body", now.Unix()-301):   errSignature,
		sign("s", "body", now.Unix()+301):   errSignature,
		sign("s", "body", math.MinInt64):    errSignature,
		sign("s", "bodY", now.Unix()):       errSignature,
		sign("S", "body", now.Unix()):       errSignature,
		"":                                  errUnsigned,
		"t=,v1=":                            errUnsigned,
		"t=1":                               errUnsigned,
		"v1=" + strings.Repeat("0", 64):     errUnsigned,
		"t=1,v1=" + strings.Repeat("x", 64): errUnsigned,
		"t=1,v1=" + strings.Repeat("0", 62): errUnsigned,
		"t=99999999999999999999,v1=" + strings.Repeat("0", 64): errUnsigned,
	} {
		err := checkSignature([]byte(header), "s", []byte("body"), now)
		if want == nil {
			require.NoError(t, err, header)
			continue
		}
		require.Equal(t, want, err, header)
	}
}
