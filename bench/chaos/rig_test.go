//go:build unix

package chaos

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/test/proxy"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// buildPrograms builds the broker with failpoints and the harness into one folder,
// with the race detector when this test has it, and returns the harness.
func buildPrograms(t *testing.T) string {
	folder := t.TempDir()
	args := []string{"build", "-tags", "failpoint", "-o", folder}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				// As in internal/test/servers/testrun, so that nothing is compiled twice.
				args = append(args, "-race", "-gcflags=modernc.org/...=-race=false",
					"-gcflags=github.com/yuin/gopher-lua/...=-race=false")
			}
		}
	}
	out, err := exec.Command("go", append(args, "github.com/penstock-broker/penstock/cmd/broker",
		"github.com/penstock-broker/penstock/cmd/bench")...).CombinedOutput()
	require.NoError(t, err, string(out))
	return filepath.Join(folder, "bench")
}

// The whole rig, for some seconds: it finds that every promise is kept, and would
// say so if it had not looked.
func TestFaultsOfAShortCampaignOnRealServersBreakNoPromise(t *testing.T) {
	harness := buildPrograms(t)
	t.Setenv("GOGC", "") // the brokers have a pace of their own
	dir := filepath.Join(t.TempDir(), "campaign")
	report := filepath.Join(t.TempDir(), "chaos.json")
	cmd := exec.Command(harness, "chaos", "--minutes", "0.6", "--seed", "1", "--rate", "100", "--every", "3s", "--dir",
		dir, "--keep", "--json", report, "--next", filepath.Join(filepath.Dir(harness), "broker"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), out.String())
	t.Log(out.String())
	var all []*Verdict
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	require.Len(t, all, 1)
	v := all[0]
	require.True(t, v.OK(), v.Samples)
	require.GreaterOrEqual(t, v.Injected(), 3)
	require.Greater(t, v.Acked, int64(300))
	require.Greater(t, v.Delivered, v.Acked)
	require.Equal(t, v.Jobs, v.Delivered+v.Dead)
	require.Positive(t, v.LeftOut, "filters and addresses leave jobs out")
	require.Positive(t, v.Answered, "responses come back")
	require.Positive(t, v.Replayed, "a replay delivers")
	require.Equal(t, 3, v.Upgrade.Brokers, "each broker was replaced, here by the same release")
	require.Positive(t, v.Upgrade.From)
	require.Equal(t, v.Upgrade.From, v.Upgrade.To)
	require.FileExists(t, filepath.Join(dir, standalone, "faults.json"))
}

// What a seed deals does not depend on when it is asked.
func TestOneSeedDealsOneSchedule(t *testing.T) {
	r := &rig{plan: newPlan(1, 1), redis: &redisWorld{kind: cluster}, nodes: []*node{{no: 0}, {no: 1}, {no: 2}},
		sinkLinks: make([]*proxy.Proxy, 4)}
	r.redis.nodes = append(r.redis.nodes, nil, nil, nil)
	deal := func(seed uint64) (out []Fault) {
		s := &schedule{seed: seed, kinds: r.kinds()}
		for range 100 {
			for _, b := range s.next(r) {
				out = append(out, b.Fault)
			}
		}
		return out
	}
	require.Equal(t, deal(1), deal(1))
	require.NotEqual(t, deal(1), deal(2))
	kinds := map[string]bool{}
	for _, f := range deal(1) {
		kinds[f.Kind] = true
	}
	want := len(r.kinds())
	require.Len(t, kinds, want, "every kind comes")
	require.Len(t, deal(1), 100+100/pairEvery)
}

func TestATornLineOfAJournalIsPassedOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.WriteFile(path, []byte("I\t1\t2\t.\nI\t17"), 0o600))
	j, err := openJournal(path)
	require.NoError(t, err)
	require.NoError(t, j.Add("T", int64(3), "x", began).Wait())
	j.Add("T", 4)
	require.NoError(t, j.Close())
	var got []string
	require.NoError(t, readJournal(path, func(kind byte, l *line) {
		got = append(got, string(kind)+l.text(1))
		if l.number(1) == 3 {
			require.Equal(t, "x", l.text(2))
			require.True(t, began.Equal(l.time(3)))
		}
	}))
	require.Equal(t, []string{"I1", "T3", "T4"}, got)
}

func TestABodyTellsItsSequenceNumber(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	sizes := map[bool]int{}
	for n := int64(1); n < 3000; n++ {
		body := newBody(rng, incarnation*3+n)
		seq, ok := parseSeq(body)
		require.True(t, ok)
		require.Equal(t, incarnation*3+n, seq)
		require.GreaterOrEqual(t, len(body), seqBytes)
		sizes[len(body) == 64<<10]++
	}
	require.Positive(t, sizes[true])
	_, ok := parseSeq([]byte("short"))
	require.False(t, ok)
	_, ok = parseSeq([]byte("not a number"))
	require.False(t, ok)
}

func TestAnOrdinaryBuildHasNoFailpoints(t *testing.T) {
	require.False(t, atPoints)
	require.Nil(t, failpoint.Hit)
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"--minutes", "0"}, {"--minutes", "NaN"}, {"--redis", "memcached"}, {"--brokers", "0"},
		{"--rate", "0"}, {"--every", "0s"}, {"--neighbours", "-1"}, {"--neighbours", "1000"}, {"extra"}, {"--no-such"}} {
		_, err := Parse(args, &bytes.Buffer{})
		require.Error(t, err, args)
	}
	c, err := Parse([]string{"--redis", "all"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, topologies, c.campaigns())
	require.NotZero(t, c.Seed)
}

func TestABrokerThatIsAsleepDoesNotHoldEveryProducer(t *testing.T) {
	p := &producer{under: make([]atomic.Int64, 3)}
	require.Equal(t, []int{0, 1, 2, 0}, []int{p.pick(0), p.pick(1), p.pick(2), p.pick(3)})
	p.under[1].Store(publishers / 4)
	require.Equal(t, []int{0, 2, 2, 0}, []int{p.pick(0), p.pick(1), p.pick(2), p.pick(3)})
	p.under[0].Store(publishers / 4)
	p.under[2].Store(publishers / 4)
	require.Equal(t, []int{0, 1, 2, 0}, []int{p.pick(0), p.pick(1), p.pick(2), p.pick(3)})
}
