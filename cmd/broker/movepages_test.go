package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of the pages about moving from another product work as they stand, also again, and the message of each
// arrives.
func TestTheCommandsOfThePagesAboutMovingWork(t *testing.T) {
	parallel(t)
	for page, body := range map[string]string{
		"docs/how-to/move-from-hermes.md": `{"user":{"name":"abc","status":"new"}}`,
		"docs/how-to/move-from-convoy.md": `{"invoice":"inv-1","paid":true}`,
		"docs/how-to/move-from-svix.md":   `{"email":"bob@example.org"}`,
	} {
		t.Run(page, func(t *testing.T) {
			parallel(t)
			target := newSink(t, nil)
			address := strings.TrimPrefix(target.URL, "http://")
			p := embeddedWorld(t).start()
			for round := 1; round <= 2; round++ {
				runPage(t, p, page, "127.0.0.1:9000", address)
				eventually(t, "the delivery", func() bool { return target.count() == round })
			}
			got := target.all()
			require.Equal(t, body, got[0].body)
			require.Equal(t, !strings.Contains(page, "hermes"), got[0].header.Get("webhook-signature") != "", "it is signed")
		})
	}
}
