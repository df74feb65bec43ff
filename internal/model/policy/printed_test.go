package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

func TestWhatIsPrintedHasNoSecret(t *testing.T) {
	record := `{"authorization":"bearer abc-secret","headers":"X-Api-Key: abc-secret\nX-B:  abc-secret","maxAttempts":"3",` +
		`"signingSecret":"whsec_abc-secret","signingSecretPrevious":"abc-secret","replyUrl":"https://r.example/p?t=abc-secret"}`
	print := func(s string) string { return "<" + string(rune('0'+len(s)%10)) + ">" }
	got := policy.Printed(record, print)
	require.Equal(t, map[string]string{"authorization": "<7>", "headers": "X-Api-Key: <0>\nX-B: <0>", "maxAttempts": "3",
		"signingSecret": "<6>", "signingSecretPrevious": "<0>", "replyUrl": "https://r.example/p?<2>"}, got)
	require.Empty(t, policy.Printed("", print))
	require.Equal(t, "http://a/b", policy.PrintedURL("http://a/b", print))
}
