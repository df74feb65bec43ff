package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADelayIsADurationOrWholeSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "10": 10 * time.Second, "10s": 10 * time.Second, "1h30m": 90 * time.Minute,
		"1.5s": 1500 * time.Millisecond,
		"1ns":  time.Millisecond, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "1.5d": 36 * time.Hour,
		"2w": 336 * time.Hour, "000000000000000000000007": 7 * time.Second, "87600h": 87600 * time.Hour,
		"3660d": Horizon, "3661d": beyond, "99999999999999999999": beyond, "100000d1h": beyond, "2500000h": beyond,
	} {
		got, err := ParseDelay(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "-1", "+1", "-10s", "+10s", "1h-5m", "1.5", "-1d", "d", "1d2", "10 s", " 10", "10S", "ten", "1e3", "0x10",
		"9999999h", "soon", "2026-12-01T00:00:00Z", strings.Repeat("9", 300) + "h", "1d-1h", "\u0661",
	} {
		_, err := ParseDelay(text)
		require.Error(t, err, text)
	}
}
