package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// worker is who has the jobs of these tests.
const worker = "billing-3;1.8.2"

var countTests = map[string]func(*testing.T, *fixture){
	"lost leases, give-backs and attempts are counted apart, up to the dead letter and over a redrive": func(
		t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		lost := []durable.LeaseEnd{{ID: id[0], Priority: 3, Attempt: 1, Worker: worker}}
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, lost, 1000))
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, lost, 1000), "again")
		want := durable.JobState{Status: durable.Open, Attempts: 1, ChangedMs: 1000, NextMs: 1000,
			Error: "the lease ended without an outcome", LeasesLost: 1}
		require.Equal(t, want, f.state(t, k, id[0]))
		f.record(t, retry(k, id[0], 2, 2000))
		f.record(t, durable.Outcome{Kind: durable.OutcomeGivenBack, ConsumerNo: k, ID: id[0], Attempts: 2, AtMs: 3000,
			NextMs: 3000, Phase: durable.PhaseGivenBack, Worker: worker})
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, []durable.LeaseEnd{{ID: id[0], Attempt: 3}}, 4000))
		got := f.state(t, k, id[0])
		require.Equal(t, []int{3, 2, 1}, []int{got.Attempts, got.LeasesLost, got.GivenBack})
		stored, err := f.Job(f.ctx, &durable.Consumer{No: k}, id[0])
		require.NoError(t, err)
		require.Equal(t, got, stored.JobState)

		last := durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k, ID: id[0], Attempts: 4, AtMs: 5000, Tracked: true,
			Reason: durable.WorkerLost, Phase: durable.PhaseLeaseEnded, Error: "lost", Worker: worker}
		f.record(t, last)
		f.record(t, last) // again
		got = f.state(t, k, id[0])
		require.Equal(t, durable.JobState{Status: durable.Dead, Attempts: 4, ChangedMs: 5000, Error: "lost",
			Reason: durable.WorkerLost, LeasesLost: 3, GivenBack: 1, Worker: worker, Fingerprint: last.Fingerprint()}, got)
		dead, err := f.DeadJobs(f.ctx, k, ident.ID{}, 10)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		require.Empty(t, dead[0].Answer)
		dead[0].Answer = nil
		require.Equal(t, []durable.DeadJob{{ID: id[0], Attempts: 4, DiedMs: 5000, Error: "lost",
			Reason: durable.WorkerLost, LeasesLost: 3, GivenBack: 1, Worker: worker,
			Fingerprint: last.Fingerprint()}}, dead)
		givenBack, leases, err := f.LeaseCounts(f.ctx, k, id[0])
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, []int{givenBack, leases})

		_, err = f.Reopen(f.ctx, k, id[0], 6000)
		require.NoError(t, err)
		got = f.state(t, k, id[0])
		require.Equal(t, []int{4, 3, 1}, []int{got.Attempts, got.LeasesLost, got.GivenBack}, "a worker took it: they go on")
		_, leases, err = f.LeaseCounts(f.ctx, k, id[0])
		require.NoError(t, err)
		require.Equal(t, 3, leases)
		f.record(t, dead0(last, 5, 7000))
		require.Equal(t, 4, f.state(t, k, id[0]).LeasesLost)
		_, err = f.Redrive(f.ctx, k, id[:1], 8000)
		require.NoError(t, err)
		got = f.state(t, k, id[0])
		require.Equal(t, []int{0, 0, 0}, []int{got.Attempts, got.LeasesLost, got.GivenBack}, "they begin again")
		givenBack, leases, err = f.LeaseCounts(f.ctx, k, id[0])
		require.NoError(t, err)
		require.Equal(t, []int{0, 0}, []int{givenBack, leases})
		f.record(t, durable.Outcome{Kind: durable.OutcomeDead, ConsumerNo: k, ID: id[1], Attempts: 1, AtMs: 9000,
			Tracked: true, Reason: durable.ByConsumer})
		require.Zero(t, f.state(t, k, id[1]).LeasesLost)
		require.Empty(t, f.state(t, k, id[1]).Worker, "it did not say who it was")
	},
	"the tasks of messages are read behind ordering key and codings": func(t *testing.T, f *fixture) {
		ch, _ := f.channel(t, "c", 1)
		batch := f.messages(ch, 4)
		batch[0].Headers = durable.TaskLine("invoice", batch[0].Headers)
		coded := durable.EncodingLine("gzip", durable.TaskLine("refund", batch[1].Headers))
		batch[1].Headers = durable.OrderingLine("k", coded)
		batch[2].Headers = durable.OrderingLine("k", durable.EncodingLine("gzip", batch[2].Headers))
		f.insert(t, batch...)
		got, err := f.Tasks(f.ctx, ch.No, append(ids(batch), ident.AtMillis(1)))
		require.NoError(t, err)
		want := map[ident.ID]string{batch[0].ID: "invoice", batch[1].ID: "refund", batch[2].ID: "", batch[3].ID: ""}
		require.Equal(t, want, got)
		require.Equal(t, "X-A:1\n", string(durable.WithoutTask(batch[0].Headers)))
	},
	"attempts and steps say which worker had the job": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 2)
		failed := retry(k, id[0], 1, 1000)
		failed.Worker = worker
		f.record(t, failed)
		lost := []durable.LeaseEnd{{ID: id[0], Attempt: 2, Worker: "o'neil\\;"}}
		require.NoError(t, f.RecordLeaseEnds(f.ctx, k, lost, 2000))
		ok := delivered(k, id[0], 3, 3000)
		ok.Tracked, ok.Worker = true, "o'neil\\;2"
		f.record(t, ok, delivered(k, id[1], 1, 3000))
		attempts, err := f.Attempts(f.ctx, k, id[0], 10)
		require.NoError(t, err)
		require.Equal(t, []string{worker, "o'neil\\;"}, []string{attempts[0].Worker, attempts[1].Worker})
		var workers []string
		for _, s := range f.steps(t, 0, k, id[0], 10) {
			workers = append(workers, s.Worker)
		}
		require.Equal(t, []string{worker, "o'neil\\;", "o'neil\\;2"}, workers)
		require.Equal(t, "o'neil\\;2", f.state(t, k, id[0]).Worker)
		require.Empty(t, f.steps(t, 0, k, id[1], 10)[0].Worker)
		plain := delivered(k, id[1], 1, 4000)
		plain.Worker = worker
		f.record(t, plain)
		require.Empty(t, f.state(t, k, id[1]).Worker, "a delivered job keeps its first row")
	},
}

// dead0 is the outcome as one of another attempt.
func dead0(o durable.Outcome, attempt int, atMs int64) durable.Outcome {
	o.Attempts, o.AtMs = attempt, atMs
	return o
}
