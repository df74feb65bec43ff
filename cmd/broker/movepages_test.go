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
	for product, body := range map[string]string{"hermes": `{"user":{"name":"abc","status":"new"}}`,
		"convoy": `{"invoice":"inv-1","paid":true}`, "svix": `{"email":"bob@example.org"}`} {
		t.Run(product, func(t *testing.T) {
			parallel(t)
			target := newSink(t, nil)
			address := strings.TrimPrefix(target.URL, "http://")
			p := embeddedWorld(t).start()
			for round := 1; round <= 2; round++ {
				runPage(t, p, "docs/how-to/move-from-"+product+".md", "127.0.0.1:9000", address)
				eventually(t, "the delivery", func() bool { return target.count() == round })
			}
			got := target.all()
			require.Equal(t, body, got[0].body)
			require.Equal(t, product != "hermes", got[0].header.Get("webhook-signature") != "", "it is signed")
		})
	}
}
