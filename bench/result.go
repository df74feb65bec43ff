package bench

import "time"

// A Result is the result of one measurement.
type Result struct {
	Started       time.Time
	Seconds       float64 // measured, without warm-up and drain
	Messages      int64   // acknowledged in that time
	PayloadBytes  int     // mean
	AckedRate     float64 // messages per second
	DeliveredRate float64 // first deliveries per second, over all consumers
	BacklogAtEnd  int64   // deliveries owed when publishing ended
	Drain         Drain   // deliveries after the publishing
	Unsent        int64   // open loop: due, but every connection was busy to the end

	Ack      Latency // intended time to acknowledgement
	Service  Latency // request sent to acknowledgement
	Delivery Latency // intended time to first arrival, per consumer
	Transit  Latency // request sent to first arrival, per consumer
	// Levels are the deliveries by priority, lowest first; empty if there is only one priority.
	Levels []LevelLatency `json:",omitempty"`

	Errors       map[string]int64  `json:",omitempty"`
	ErrorSamples map[string]string `json:",omitempty"`
	// by process, in the measured time; Disturbance is the rest of the machine, Stolen the time its host kept back
	CPUSeconds map[string]float64
	Switches   map[string]float64 `json:",omitempty"` // of threads, by process, in the measured time
	CPUMicros  float64            // of all of them but the rest, per acknowledged message
	Memory     map[string]Memory  `json:",omitempty"` // resident, by process, in the measured time
	Series     []Sample
	Ledger     *Verdict
	Audit      *Audit `json:",omitempty"` // nil: none
}

// stolen is how many cores the host kept back.
func (r *Result) stolen() float64 { return r.CPUSeconds[Stolen] / max(r.Seconds, 1e-9) }

// A Drain describes the deliveries after the publishing.
type Drain struct {
	Deliveries int64
	Seconds    float64            // to the last of them
	CPUSeconds map[string]float64 // by process, as Result.CPUSeconds; with some waiting at its end
}

// Micros is the CPU time of a delivery over all processes but the rest of the machine.
func (d Drain) Micros() float64 {
	if d.Deliveries <= 0 {
		return 0
	}
	return total(d.CPUSeconds) * 1e6 / float64(d.Deliveries)
}

// Rate is in deliveries per second.
func (d Drain) Rate() float64 {
	if d.Seconds <= 0 {
		return 0
	}
	return float64(d.Deliveries) / d.Seconds
}

// A LevelLatency is the delivery latency of one priority.
type LevelLatency struct {
	Priority int
	Delivery Latency
}

// A Memory is the resident memory of a process over a run, in MiB, sampled once
// a second. Half is that of the middle of the run: a process that leaks has
// grown between it and End.
type Memory struct {
	Start, Half, End, Most float64

	samples []float64
}

func (m Memory) with(mb float64) Memory {
	m.samples = append(m.samples, mb)
	m.Start, m.Half, m.End, m.Most = m.samples[0], m.samples[len(m.samples)/2], mb, max(m.Most, mb)
	return m
}

// ErrorCount returns the number of answers without success.
func (r *Result) ErrorCount() (n int64) {
	for _, k := range r.Errors {
		n += k
	}
	return n
}
