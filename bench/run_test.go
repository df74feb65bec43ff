package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The test binary is also what it starts: a broker, or the other end of an
	// exchange. It must not run all tests again instead.
	switch {
	case len(os.Args) > 1 && os.Args[1] == "peer":
		os.Exit(Main(os.Args[1:]))
	case len(os.Args) > 1 && os.Args[1] == "serve":
		os.Exit(fakeServe())
	}
	goleak.VerifyTestMain(m,
		// fasthttp keeps these for the life of a process.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreTopFunction("github.com/valyala/fasthttp.(*TCPDialer).tcpAddrsClean"),
		// These end some seconds after the last use.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"),
	)
}

// bench runs the command against the fake broker and returns code, table and report.
func runBench(t *testing.T, f *fakeBroker, args ...string) (int, string, *Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	var out, progress bytes.Buffer
	code := run(context.Background(), append(args, "--url", f.url, "--json", path), &out, &progress)
	b, err := os.ReadFile(path)
	require.NoError(t, err, progress.String())
	var r Report
	require.NoError(t, json.Unmarshal(b, &r))
	return code, out.String() + progress.String(), &r
}

func TestARunWhosePromisesAreKeptEndsWithZero(t *testing.T) {
	bodies := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bodies, "binary"), []byte{0, 1, 2, 255, 254}, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bodies, "empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bodies, "text"), []byte(`{"order":"é"}`), 0o600))
	for name, args := range map[string][]string{
		"push":      {"--connections", "4", "--messages", "500", "--push-consumers", "3"},
		"channels":  {"--connections", "4", "--messages", "500", "--channels", "3", "--push-consumers", "2"},
		"open loop": {"--connections", "4", "--messages", "300", "--rate", "2000"},
		"timed":     {"--connections", "2", "--warmup", "50ms", "--duration", "300ms"},
		"pull":      {"--connections", "4", "--messages", "300", "--push-consumers", "0", "--pull-workers", "3"},
		"pull in batches": {"--connections", "4", "--messages", "300", "--push-consumers", "1", "--pull-workers", "2",
			"--pull-batch", "50"},
		"batches":              {"--connections", "2", "--messages", "501", "--batch", "50", "--channels", "2"},
		"real bodies":          {"--connections", "2", "--messages", "100", "--payload-from", bodies},
		"real bodies, batches": {"--connections", "2", "--messages", "100", "--payload-from", bodies, "--batch", "10"},
		"real bodies, pulled": {"--connections", "2", "--messages", "100", "--payload-from", bodies, "--push-consumers",
			"0", "--pull-workers", "1"},
		"priorities":            {"--connections", "4", "--messages", "500", "--priority", "0:80,1023:20"},
		"names of the producer": {"--connections", "4", "--messages", "500", "--message-ids"},
		"a rate that is kept": {"--connections", "4", "--messages", "500", "--policy", "rateLimit=1000/1s", "--policy",
			"timeout=1s"},
		"no consumers": {"--connections", "4", "--messages", "500", "--push-consumers", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text, r := runBench(t, startFakeBroker(t), append([]string{"run"}, args...)...)
			require.Equal(t, ExitOK, code, text)
			v := r.Results[0].Ledger
			require.True(t, v.OK())
			require.Positive(t, v.Acked)
			require.Equal(t, v.Sent, v.Acked)
			require.Equal(t, v.Expected, v.Delivered)
			require.EqualValues(t, r.Config.consumersPerChannel(), v.Expected/v.Acked)
			require.Zero(t, v.Duplicates+v.Lost+v.Corrupted)
			require.Empty(t, r.Results[0].Errors, text)
			require.Positive(t, r.Results[0].AckedRate)
		})
	}
}

func TestEachBrokenPromiseIsFoundAndNamed(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*fakeBroker)
		args    []string
		code    int
		check   func(*testing.T, *Verdict)
		word    string
	}{
		"loss": {func(f *fakeBroker) { f.loseEvery = 50 }, nil, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 4, v.Lost) }, "lost: message "},
		"copy": {func(f *fakeBroker) { f.copyEvery = 50 }, nil, ExitOK,
			func(t *testing.T, v *Verdict) {
				require.EqualValues(t, 4, v.Duplicates)
				require.Equal(t, 2, v.MaxCopies)
			}, "duplicate: sequence "},
		"copy, strictly": {func(f *fakeBroker) { f.copyEvery = 50 }, []string{"--strict"}, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 4, v.Duplicates) }, "FAILED"},
		"corruption": {func(f *fakeBroker) { f.corruptEvery = 50 }, nil, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 4, v.Corrupted); require.Zero(t, v.Lost) },
			"corrupted: consumer "},
		"refused but delivered": {func(f *fakeBroker) { f.refuseButDeliverEvery = 50 }, nil, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 4, v.Unpromised) }, "unpromised: "},
		"unsure and delivered": {func(f *fakeBroker) { f.unsureEvery = 50 }, nil, ExitOK,
			func(t *testing.T, v *Verdict) {
				require.EqualValues(t, 4, v.Uncertain)
				require.EqualValues(t, 4, v.Bonus)
			}, "4 x status 503"},
		"overloaded": {func(f *fakeBroker) { f.overloadEvery = 50 }, nil, ExitOK,
			func(t *testing.T, v *Verdict) {
				require.EqualValues(t, 4, v.Refused)
				require.Zero(t, v.Uncertain)
			}, "4 x status 503"},
		"overloaded, batches": {func(f *fakeBroker) { f.overloadEvery = 50 }, []string{"--batch", "10"}, ExitOK,
			func(t *testing.T, v *Verdict) {
				require.EqualValues(t, 4, v.Refused)
				require.Zero(t, v.Uncertain)
			}, "4 x line status 503"},
		"overloaded, then there was room": {func(f *fakeBroker) { f.overloadEvery = 50 }, []string{"--message-ids"}, ExitOK,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 200, v.Acked) }, "status 503"},
		"overloaded, it said": {func(f *fakeBroker) { f.overloadEvery, f.overloadLies = 50, true }, nil, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 4, v.Unpromised) }, "unpromised: "},
		"more than the rate": {func(*fakeBroker) {}, []string{"--policy", "rateLimit=100/1h"}, ExitPromise,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 100, v.OverRate) }, "100 requests beyond it"},
		"out of order": {func(f *fakeBroker) { f.delayEvery = 50 }, []string{"--policy", "ordered=true", "--keys", "8"},
			ExitPromise,
			func(t *testing.T, v *Verdict) { require.Positive(t, v.OutOfOrder); require.Equal(t, 8, v.Keys) },
			"out of the order of their key"},
		"unsure and repeated": {func(f *fakeBroker) { f.unsureEvery = 50 }, []string{"--message-ids"}, ExitOK,
			func(t *testing.T, v *Verdict) { require.EqualValues(t, 200, v.Acked); require.Zero(t, v.Duplicates) },
			"status 503"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFakeBroker(t)
			c.breakIt(f)
			args := append([]string{"run", "--messages", "200", "--connections", "4", "--drain", "3s"}, c.args...)
			code, text, r := runBench(t, f, args...)
			require.Equal(t, c.code, code, text)
			c.check(t, r.Results[0].Ledger)
			require.Contains(t, text, c.word)
		})
	}
}

func TestALostMessageIsNamedByTheIDTheProducerGave(t *testing.T) {
	f := startFakeBroker(t)
	f.loseEvery = 50
	code, text, _ := runBench(t, f, "run", "--messages", "50", "--connections", "1", "--drain", "100ms", "--message-ids")
	require.Equal(t, ExitPromise, code)
	require.Regexp(t, `lost: message b[0-9a-z]+-49, sequence 49`, text)
}

func TestChannelsHaveTheFieldsOfTheRunAndReceiptsAreCounted(t *testing.T) {
	f := startFakeBroker(t)
	code, text, r := runBench(t, f, "run", "--messages", "40", "--connections", "1", "--channel", "ack=journal",
		"--channel", "latencyBudget=20ms")
	require.Equal(t, ExitOK, code, text)
	require.EqualValues(t, 40, r.Results[0].Ledger.Acked)
	require.EqualValues(t, 20, r.Results[0].Ledger.Receipts)
	require.Contains(t, text, "from the journal: 20, 50 % of the acked")
	_, _, r = runBench(t, startFakeBroker(t), "run", "--messages", "40", "--connections", "1")
	require.Zero(t, r.Results[0].Ledger.Receipts)
}

func TestFaultySinksAreNoReasonForLoss(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--messages", "300", "--connections", "4", "--sink",
		"fail=20%,429=5%,slow=1ms")
	require.Equal(t, ExitOK, code, text)
	v := r.Results[0].Ledger
	require.Equal(t, v.Expected, v.Delivered+v.Dead)
	require.Zero(t, v.Duplicates)
}

func TestWhatIsStillQueuedAtTheEndIsPendingAndNotLost(t *testing.T) {
	f := startFakeBroker(t)
	f.idle = true
	code, text, r := runBench(t, f, "run", "--messages", "20", "--connections", "2", "--push-consumers", "0",
		"--pull-workers", "1", "--drain", "200ms")
	require.Equal(t, ExitUnproven, code, text)
	require.EqualValues(t, 20, r.Results[0].Ledger.Pending)
	require.Zero(t, r.Results[0].Ledger.Lost)
	require.Contains(t, text, "UNPROVEN")
}

func TestABacklogHoldsAClosedLoop(t *testing.T) {
	f := startFakeBroker(t)
	f.idle = true
	_, _, r := runBench(t, f, "run", "--warmup", "0", "--duration", "3s", "--connections", "2", "--push-consumers", "0",
		"--pull-workers", "1",
		"--drain", "100ms", "--max-backlog", "50")
	require.Less(t, r.Results[0].Ledger.Acked, int64(60))
	require.Greater(t, r.Results[0].Ledger.Acked, int64(50))
}

func TestDeadLettersAreNotLosses(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--messages", "20", "--connections", "2", "--sink",
		"fail=100%", "--drain", "30s")
	require.Equal(t, ExitOK, code, text)
	require.EqualValues(t, 20, r.Results[0].Ledger.Dead)
}

func TestHangingSinksEndWithTheRun(t *testing.T) {
	start := time.Now()
	f := startFakeBroker(t)
	f.timeout = 300 * time.Millisecond
	code, text, r := runBench(t, f, "run", "--messages", "50", "--connections", "2", "--sink", "hang=10%",
		"--drain", "10s")
	require.Equal(t, ExitOK, code, text)
	require.Equal(t, r.Results[0].Ledger.Expected, r.Results[0].Ledger.Delivered)
	require.Less(t, time.Since(start), hangFor)
}

func TestABrokerThatServesLowPrioritiesFirstIsFound(t *testing.T) {
	f := startFakeBroker(t)
	f.lastFirst = true
	// Slower than messages come, so that a queue builds up.
	_, text, r := runBench(t, f, "run", "--messages", "400", "--connections", "8", "--push-consumers", "0",
		"--pull-workers", "1",
		"--priority", "0:50,10:50", "--order-slack", "1ms")
	require.Positive(t, r.Results[0].Ledger.Overtaken, text)
}

func TestAStalledBrokerIsChargedForWhatShouldHaveBeenSentMeanwhile(t *testing.T) {
	const rate, stall = 500, 600 * time.Millisecond
	stalled := func(extra ...string) *Result {
		f := startFakeBroker(t)
		f.stallAt, f.stallFor = 100, stall
		_, text, r := runBench(t, f, append([]string{"run", "--connections", "2", "--push-consumers", "1"}, extra...)...)
		require.Contains(t, text, "From the sending")
		return r.Results[0]
	}
	open := stalled("--rate", "500", "--warmup", "0", "--duration", "2s")
	h, err := open.Ack.Histogram()
	require.NoError(t, err)
	late := int64(0)
	for _, b := range h.Distribution() {
		if b.From >= 100_000 { // microseconds
			late += b.Count
		}
	}
	// During 500 of the 600 ms every scheduled message waits for 100 ms or more.
	require.Greater(t, late, int64(float64(rate)*0.4))
	require.Greater(t, open.Ack.P90, 100.0)
	// The service time shows what a naive client would say: two bad requests.
	require.Less(t, open.Service.P90, 100.0)
	require.Less(t, open.Transit.P90, open.Delivery.P90)
	require.Equal(t, open.Delivery.Count, open.Transit.Count)
	require.EqualValues(t, 1000, open.Ledger.Acked)
}

func TestFindMaxEndsAtARateThatKeepsTheBound(t *testing.T) {
	f := startFakeBroker(t)
	code, text, r := runBench(t, f, "find-max", "--p99", "1s", "--start", "50", "--max-steps", "2", "--duration", "300ms",
		"--warmup", "0", "--connections", "4", "--push-consumers", "0")
	require.Equal(t, ExitOK, code, text)
	require.Positive(t, r.Search.Best)
	require.GreaterOrEqual(t, len(r.Search.Steps), 2) // more where the machine was too slow for a step
}

func TestASignalStillReconcilesWhatWasSent(t *testing.T) {
	f := startFakeBroker(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		for f.taken() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(signalled{os.Interrupt})
	}()
	var out, progress bytes.Buffer
	code := run(ctx, []string{"run", "--url", f.url, "--duration", "1m", "--connections", "2"}, &out, &progress)
	require.Equal(t, 130, code, progress.String())
	require.Contains(t, out.String(), "ledger 1:")
}

func TestUsageIsRefusedBeforeAnythingHappens(t *testing.T) {
	for _, args := range []string{
		"nonsense", "run --no-such-flag", "run extra", "run --connections 0", "run --url http://192.0.2.1:80",
		"run --url https://127.0.0.1",
		"run --url http://example.com", "run --duration 48h", "run --rate NaN", "run --payload 3",
		"run --payload-from /no/such", "run --sink bad", "run --priority 2000",
		"run --mysql x", "run --broker-env x", "compare one", "compare /no/such /file", "limits --each 1h",
		"find-max --rate 5", "run --messages 999999999999",
		"run --channels 1000 --push-consumers 256", "run --channel ack", "run --policy =x",
	} {
		var out, progress bytes.Buffer
		code := run(context.Background(), strings.Fields(args), &out, &progress)
		require.Equal(t, ExitUsage, code, args+progress.String())
		require.NotEmpty(t, progress.String(), args)
	}
}

func TestAnotherMachineIsLoadedOnlyByItsOwner(t *testing.T) {
	require.NoError(t, checkURL("http://192.0.2.1:8080", true))
	require.Error(t, checkURL("http://192.0.2.1:8080", false))
	require.NoError(t, checkURL("http://[::1]:8080", false))
	require.Error(t, checkURL("http://user:pw@127.0.0.1", false))
	require.Error(t, checkURL("http://127.0.0.1.example.com", false))
}

func TestDeliveriesAreShownByPriority(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--connections", "4", "--messages", "500", "--priority",
		"0:80,1000:20")
	require.Equal(t, ExitOK, code, text)
	levels := r.Results[0].Levels
	require.Len(t, levels, 2)
	require.Equal(t, []int{0, 1000}, []int{levels[0].Priority, levels[1].Priority})
	require.Positive(t, levels[1].Delivery.Count)
	require.Equal(t, r.Results[0].Delivery.Count, levels[0].Delivery.Count+levels[1].Delivery.Count)
	require.Contains(t, text, "priority 1000, run 1:")
}

func TestMemoryIsSampledOverARun(t *testing.T) {
	mb, ok := Process{PID: os.Getpid()}.ResidentMB()
	require.True(t, ok)
	require.Greater(t, mb, 1.0)
	var m Memory
	for _, v := range []float64{10, 11, 15, 12} {
		m = m.with(v)
	}
	require.Equal(t, []float64{10, 15, 12, 15}, []float64{m.Start, m.Half, m.End, m.Most})
}

func TestABacklogIsBuiltFirstAndItsDrainMeasured(t *testing.T) {
	code, text, r := runBench(t, startFakeBroker(t), "run", "--connections", "4", "--messages", "500", "--push-consumers",
		"0", "--pull-workers", "2", "--pull-batch", "50", "--consume-after")
	require.Equal(t, ExitOK, code, text)
	require.EqualValues(t, 500, r.Results[0].BacklogAtEnd, "nobody consumes while messages are published")
	require.EqualValues(t, 500, r.Results[0].Drain.Deliveries)
	require.Positive(t, r.Results[0].Drain.Rate())
	require.Regexp(t, `drain 1: 500 deliveries .* us of CPU each: bench `, text)
}
