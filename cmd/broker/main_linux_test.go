package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABrokerHasTheTimerSlackThatItIsTold(t *testing.T) {
	for setting, want := range map[string]string{"": "500\u00b5s", "1ms": "1ms"} {
		p := embeddedWorld(t).start("BROKER_TIMER_SLACK=" + setting)
		require.Contains(t, p.log.String(), `"timer_slack":"`+want+`"`)
	}
}
