package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnIdentityIsReadBackFromTheFrontOfABody(t *testing.T) {
	p, err := NewPayloads(200)
	require.NoError(t, err)
	id := Identity{Run: 1<<63 + 5, Seq: 99, Intended: 1_700_000_000_000_000_000, Sent: 1_700_000_001_000_000_000}
	body := p.Append(nil, id)
	require.Len(t, body, 200)
	require.Len(t, body, p.Len(id.Seq))
	got, err := identityOf(nil, body)
	require.NoError(t, err)
	require.Equal(t, id, got)
	for _, c := range body { // so that it may stand in JSON as it is
		require.True(t, c >= ' ' && c < 0x7f && c != '"' && c != '\\')
	}
	other := p.Append(nil, Identity{Run: id.Run, Seq: 100, Intended: id.Intended})
	require.NotEqual(t, sum(body), sum(other))
}

func TestOneChangedBitChangesTheSum(t *testing.T) {
	p, err := NewPayloads(1024)
	require.NoError(t, err)
	body := p.Append(nil, Identity{})
	want := sum(body)
	for i := range body {
		body[i] ^= 0x10
		require.NotEqual(t, want, sum(body))
		body[i] ^= 0x10
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(Identity{1, 2, 3, 4}.Append(nil))
	f.Add([]byte("PENBENCH2-"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := ParseIdentity(b)
		if err != nil {
			return
		}
		again, err := ParseIdentity(id.Append(nil))
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}

func TestAMixIsMetByTheMessages(t *testing.T) {
	m, err := ParseMix("0:90,1023:10")
	require.NoError(t, err)
	high := 0
	for seq := range uint64(100_000) {
		if m.Priority(m.Level(seq)) == 1023 {
			high++
		}
	}
	require.InDelta(t, 10_000, high, 500)
	for _, bad := range []string{"", "x", "-1", "1024", "1:0", "1,1", "1:2:3"} {
		_, err := ParseMix(bad)
		require.Error(t, err, bad)
	}
}

func TestABehaviourDrawsWhatItSays(t *testing.T) {
	b, err := ParseBehaviour("slow=2ms,fail=20%,hang=0.1,429")
	require.NoError(t, err)
	counts := map[fate]int{}
	for range 100_000 {
		counts[b.draw()]++
	}
	require.InDelta(t, 60_000, counts[fateAccept], 1000)
	require.InDelta(t, 20_000, counts[fateFail], 1000)
	require.InDelta(t, 10_000, counts[fateHang], 1000)
	require.InDelta(t, 10_000, counts[fateThrottle], 1000)
	for _, bad := range []string{"x", "ok=1", "slow", "slow=-1s", "fail=101%", "fail=NaN", "fail=60%,hang=60%", "hang=x"} {
		_, err := ParseBehaviour(bad)
		require.Error(t, err, bad)
	}
}
