package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDoneJobsAreReadByTheirKindAndATornLineIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done")
	done, err := readDone(file, "nothing")
	require.NoError(t, err)
	require.Empty(t, done)
	const text = "nothing 1 1000\nsleep 1 1500\nnothing 2 2000\nnothing 1 3000\nnothing 3 40"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	done, err = readDone(file, "nothing")
	require.NoError(t, err)
	require.Equal(t, []doneJob{{1, 1000}, {2, 2000}, {1, 3000}}, done)
	require.Equal(t, 2, distinct(done))
	lost, repeated := reconcile([]int{1, 2, 3}, done)
	require.Equal(t, [2]int{1, 1}, [2]int{lost, repeated})
}

func TestFullSlotsHaveAnEfficiencyOfOne(t *testing.T) {
	var done []doneJob
	for i := range 10 * slots { // ten jobs at each end of 100 ms
		done = append(done, doneJob{i, int64(i/slots+1) * 1e8})
	}
	require.InDelta(t, 100, rate(done, 2*slots), 0.001)
	require.Zero(t, rate(done[:1], 0))
	require.Zero(t, rate(done[:2], 0), "jobs of one moment have no rate")
}

func TestTheMemoryOfAWorkerIsThatOfItsProcessGroup(t *testing.T) {
	p, err := start("two", t.TempDir(), syscall.SIGKILL, exec.Command("sh", "-c", "sleep 60 & sleep 60; true"))
	require.NoError(t, err)
	defer func() {
		require.NoError(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL))
		<-p.exited
	}()
	rss, pss, err := memoryOf(p.cmd.Process.Pid)
	require.NoError(t, err)
	require.Positive(t, pss)
	require.LessOrEqual(t, pss, rss)
	_, _, err = memoryOf(1 << 30)
	require.Error(t, err)
}

func TestTheTableOfClientsComparesRoundsAndNamesWhatWasLost(t *testing.T) {
	r := &clientReport{Versions: map[string]string{"Celery": "celery 5"}}
	for round := 1; round <= 3; round++ {
		at := float64(round)
		r.Runs = append(r.Runs, &clientRun{
			Client: "penstock-python-sqlite", Round: round, Published: 500, Done: 1000 * at, Efficiency: 1, AskP50: 2, PSS: 1 << 20,
		}, &clientRun{
			Client: "celery-always", Round: round, Published: 1000, Done: 500 * at, Efficiency: 0.5, AskP50: 4, PSS: 2 << 20,
		})
	}
	r.Killed = []*killRun{{Client: "celery-always", Acked: 600, Lost: 7, Repeated: 2, Recovered: 14.4}}
	var out strings.Builder
	printClients(&out, r)
	require.Contains(t, out.String(), "| Penstock, Python, embedded SQLite | Celery, `acks_late`, Redis always |"+
		" 0.50 | 2.00 | 2.00 | 0.50 | 0.50 |")
	require.Contains(t, out.String(), "| 7, 2 of 600 | 14 |")
	require.Equal(t, exitOK, r.verdict(), "a loss of a peer is a result")
	r.Killed[0].Client = "penstock-node-sqlite"
	require.Equal(t, exitPromise, r.verdict())
}

func TestOptionsOfClientsAreChecked(t *testing.T) {
	o, err := parseClientOptions(nil, io.Discard)
	require.NoError(t, err)
	require.Len(t, o.subjects, len(clients))
	_, err = parseClientOptions([]string{"-subjects", "celery", "-rounds", "0"}, io.Discard)
	require.ErrorContains(t, err, `no "celery" among`)
	require.ErrorContains(t, err, "-rounds is 0: want 1 to 100")
}
