package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// A traceSink takes the traces of a started broker by OTLP and forgets them.
type traceSink struct {
	server  *http.Server
	exports atomic.Int64
	env     []string // settings that make a broker record its share of the messages there
}

// startTraceSink listens for the traces of a share of the messages.
func startTraceSink(share float64) (*traceSink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	s := &traceSink{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + ln.Addr().String(),
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=" + strconv.FormatFloat(share, 'g', -1, 64)}}
	s.server = &http.Server{ReadTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 0 {
				s.exports.Add(1)
			}
			w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer: all taken
		})}
	go func() { _ = s.server.Serve(ln) }() // ends with close
	return s, nil
}

// close ends the sink after its broker. A broker that sent nothing was not measured with traces.
func (s *traceSink) close() error {
	err := s.server.Close()
	if s.exports.Load() == 0 {
		err = errors.Join(err, errors.New("bench: the broker sent no traces"))
	}
	return err
}
