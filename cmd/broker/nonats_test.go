//go:build !nats

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThisBuildSaysWhichOneSendsToNATS(t *testing.T) {
	parallel(t)
	s := embeddedWorld(t).start().stage(t)
	for _, callback := range []string{"nats://127.0.0.1:4222/orders", "tls://127.0.0.1/orders", "NATS:x"} {
		r := s.tryCallback(callback)
		requireProblem(t, r, 400, "invalid_callback")
		require.Contains(t, r.body, "make build TAGS=nats")
	}
}
