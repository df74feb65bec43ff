package main

import (
	"os"
	"runtime"

	dto "github.com/prometheus/client_model/go"

	"github.com/penstock-broker/penstock/hotpath/metrics"
	"github.com/penstock-broker/penstock/internal/feature/fleet"
	"github.com/penstock-broker/penstock/internal/feature/ui"
	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// newFleet makes what tells the other brokers how this one is doing.
func (b *broker) newFleet(m *metrics.Metrics) *fleet.Keeper {
	host, _ := os.Hostname()
	name := nodeName(host, os.Getpid(), b.cfg)
	return fleet.New(fleet.Options{Queue: b.queue, Version: running(), NowMs: b.node.NowMs, Log: b.log,
		Node: func() (no int, of string) { return int(b.nodeNo()), name },
		Count: func() fleet.Counts {
			snapshot := b.book.Snapshot()
			consumers, channels := snapshot.Sum()
			var pushed dto.Metric
			_ = m.PushInFlight.Write(&pushed) // a gauge of this process
			j := b.plane.JournalState()
			return fleet.Counts{Accepted: channels.Accepted, Delivered: consumers.Delivered, Answers: m.Answers(),
				InFlight: int(pushed.GetGauge().GetValue()), FanOut: b.plane.FanoutPending(),
				Journal: fleet.Journal{Waiting: j.Waiting, Held: j.Held, Bytes: j.Bytes, Oldest: j.Oldest.Milliseconds(),
					Damaged: j.Damaged}}
		}})
}

// running is what this program is.
func running() apitype.Version {
	return apitype.Version{Version: version, Commit: commit(), Go: runtime.Version()}
}

// brokers are those that are alive, each with what it says of itself, for the dashboard. It asks nobody.
func (b *broker) brokers() (list []ui.Broker) {
	lease, err := b.node.Lease()
	own, others := b.fleet.Notes()
	for _, n := range b.node.Peers() {
		of := ui.Broker{No: int(n.No), Name: n.Name, Self: err == nil && n.Token == lease.Token, Expires: n.Expires}
		if of.Self {
			if own.AtMs > 0 {
				of.Note = &own
			}
		} else {
			of.Note = noteOf(others, of.No, of.Name)
		}
		list = append(list, of)
	}
	return list
}

// noteOf is the newest note of a node; nil: there is none. A container that was killed and came back has the name and
// the number of the one before.
func noteOf(notes []fleet.Note, no int, name string) (newest *fleet.Note) {
	for i := range notes {
		n := &notes[i]
		if n.No == no && n.Name == name && (newest == nil || n.AtMs > newest.AtMs) {
			newest = n
		}
	}
	return newest
}
