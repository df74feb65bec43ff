package quantity

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const day = 24 * time.Hour

func TestADurationMayHaveDaysAndWeeks(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "500us": 500 * time.Microsecond, "-1s": -time.Second,
		"+1s": time.Second,
		"1d":  day, "1d12h": 36 * time.Hour, "12h1d": 36 * time.Hour, "2w": 14 * day, "1w1d1h1m1s1ms": 8*day + time.Hour +
			time.Minute + time.Second + time.Millisecond,
		"0.5d": 12 * time.Hour, "1.5w": 252 * time.Hour, "0d": 0, "-1d": -day, "+1d": day, "106751d": 106751 * day,
	} {
		got, err := Duration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestWhatIsNoDurationIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "-", "+", "d", "w", "1", "30", "1D", "1 d", "1d 12h", " 1d", "1day", "1y", "1dd", "1d12", "d1", "--1d", "-1d-1h",
		"1e3d", "..d", "1.2.3d",
		"106752d", "99999999999999999999d", "15251w", "106751d24h", strings.Repeat("1d", 1000), "\x00", "1ｄ", "infd",
	} {
		_, err := Duration(text)
		require.Error(t, err, "%q", text)
	}
}

func TestASizeHasUnitsOf1000And1024(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "65536": 65536, "7b": 7, "7 B": 7, "4k": 4000, "4KB": 4000, "4KiB": 4096, "4Ki": 4096, "4MB": 4_000_000,
		"4M": 4_000_000, "4mb": 4_000_000, "4 MB": 4_000_000,
		"4MiB": 4 << 20, "4 MiB": 4 << 20, "4mib": 4 << 20, "4Mi": 4 << 20, " 4MiB ": 4 << 20, "1GB": 1_000_000_000,
		"1GiB": 1 << 30, "1.5GiB": 3 << 29, "0.5k": 500,
		"2T": 2_000_000_000_000, "1TiB": 1 << 40, "9223372036854775807": math.MaxInt64,
	} {
		got, err := Size(text, math.MaxInt64)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestWhatIsNoSizeOrTooLargeIsRefused(t *testing.T) {
	for _, text := range []string{
		"", " ", "0", "-1", "+1", "MiB", "4X", "4MBit", "4 M B", "1e6", "0x10", "1,5MB", "1.2.3MB", "0.1", "1.5", "1.5B", ".",
		"4MiB4", "1_000", "99999999999999999999", "9999999999999TiB", "4\x00MB", "٤MB",
		strings.Repeat("9", 1000),
	} {
		_, err := Size(text, math.MaxInt64)
		require.Error(t, err, "%q", text)
	}
	_, err := Size("64MiB", 64<<20)
	require.NoError(t, err)
	for _, text := range []string{"67108865", "64.1MiB", "65MiB", "1GiB", "1T"} {
		_, err := Size(text, 64<<20)
		require.Error(t, err, text)
	}
}

func FuzzQuantitiesAreReadOrRefused(f *testing.F) {
	for _, text := range []string{"1d12h", "-2w", "4 MiB", "1.5GB", "9999999999999w", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := time.ParseDuration(text); err == nil {
			got, err := Duration(text)
			require.NoError(t, err)
			require.Equal(t, d, got)
		}
		if d, err := Duration(text); err == nil && !strings.HasPrefix(text, "-") {
			require.GreaterOrEqual(t, d, time.Duration(0))
		}
		if n, err := Size(text, 1<<50); err == nil {
			require.Positive(t, n)
			require.LessOrEqual(t, n, int64(1<<50))
		}
	})
}
