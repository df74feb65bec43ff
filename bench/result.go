package bench

import "time"

// A Result is what one measurement found.
type Result struct {
	Started       time.Time
	Seconds       float64 // measured, without warm-up and drain
	Messages      int64   // acknowledged in that time
	PayloadBytes  int     // mean
	AckedRate     float64 // messages per second
	DeliveredRate float64 // first deliveries per second, over all consumers
	BacklogAtEnd  int64   // deliveries owed when publishing ended
	Unsent        int64   // open loop: due, but every connection was busy to the end

	Ack      Latency // intended time to acknowledgement
	Service  Latency // request sent to acknowledgement
	Delivery Latency // intended time to first arrival, per consumer

	Errors       map[string]int64   `json:",omitempty"`
	ErrorSamples map[string]string  `json:",omitempty"`
	CPUSeconds   map[string]float64 // by process, in the measured time; Disturbance is the rest of the machine
	CPUMicros    float64            // of all of them but the rest, per acknowledged message
	Series       []Sample
	Ledger       *Verdict
}

// ErrorCount is the number of answers that were no success.
func (r *Result) ErrorCount() (n int64) {
	for _, k := range r.Errors {
		n += k
	}
	return n
}
