package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkTimingOfRefusals looks for what the time of a refusal tells a client
// that guesses. Two kinds of requests go over one connection, one after the
// other in random order; after each sample the metric |t| (Welch's t-test of
// the means) says how well they can be told apart: below 3 is chance. The slowest
// twentieth of all samples is left out, for it is the machine's. Only the
// second pair may differ: whether a channel exists is told by the status
// anyway, and shows what the test can see.
//
//	go test ./cmd/broker -run '^$' -bench TimingOfRefusals -benchtime 1000000x
func BenchmarkTimingOfRefusals(b *testing.B) {
	const token = "a-token-of-some-length-that-is-guessed-byte-by-byte"
	early, late := "X"+token[1:], token[:len(token)-1]+"X"
	p := realWorld(b).with("BROKER_DELIVERY_TIMEOUT=10m").start()
	for path, form := range map[string]string{"/producer/p": "token=" + token, "/channel/c": "token=" + token} {
		if r, err := p.try("PUT", path, form, "Content-Type", formType); err != nil || r.status != 201 {
			b.Fatalf("PUT %s: %v %s", path, err, r.body)
		}
	}
	post := func(channel, channelToken, producer, producerToken string) string {
		return fmt.Sprintf("POST /channel/%s/broadcast HTTP/1.1\r\nHost: b\r\nContent-Length: "+
			"0\r\nX-Broker-Channel-Token: %s\r\nX-Broker-Producer-ID: %s\r\n"+
			"X-Broker-Producer-Token: %s\r\n\r\n", channel, channelToken, producer, producerToken)
	}
	for _, pair := range []struct {
		name string
		text [2]string
	}{
		{"channel token wrong early or late", [2]string{post("c", early, "p", token), post("c", late, "p", token)}},
		{"channel unknown or its token wrong", [2]string{post("d", late, "p", token), post("c", late, "p", token)}},
		{"producer token wrong early or late", [2]string{post("c", token, "p", early), post("c", token, "p", late)}},
		{"wrong channel token, producer known or not", [2]string{post("c", late, "p", token), post("c", late, "q", token)}},
		{"the same twice", [2]string{post("c", late, "p", token), post("c", late, "p", token)}},
	} {
		b.Run(strings.ReplaceAll(pair.name, " ", "-"), func(b *testing.B) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			var samples [2][]float64
			for b.Loop() {
				kind := rand.IntN(2)
				start := time.Now()
				if _, err := io.WriteString(conn, pair.text[kind]); err != nil {
					b.Fatal(err)
				}
				r, err := http.ReadResponse(answers, nil)
				if err != nil || r.StatusCode < 400 || r.StatusCode >= 500 {
					b.Fatal("not refused: ", err, r)
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					b.Fatal(err)
				}
				samples[kind] = append(samples[kind], float64(time.Since(start).Nanoseconds()))
			}
			b.ReportMetric(welch(cropped(samples)), "|t|")
		})
	}
}

// cropped leaves out what is slower than 95 % of all samples.
func cropped(samples [2][]float64) [2][]float64 {
	all := slices.Sorted(slices.Values(slices.Concat(samples[0], samples[1])))
	if len(all) == 0 {
		return samples
	}
	bound := all[len(all)*95/100]
	for i := range samples {
		samples[i] = slices.DeleteFunc(samples[i], func(v float64) bool { return v > bound })
	}
	return samples
}

// welch is the absolute value of Welch's t: the difference of the means over its
// standard error. 0 where there are too few samples.
func welch(samples [2][]float64) float64 {
	var mean, variance [2]float64
	for i, s := range samples {
		if len(s) < 2 {
			return 0
		}
		for _, v := range s {
			mean[i] += v / float64(len(s))
		}
		for _, v := range s {
			variance[i] += (v - mean[i]) * (v - mean[i]) / float64(len(s)-1) / float64(len(s))
		}
	}
	if variance[0]+variance[1] == 0 {
		return 0
	}
	return math.Abs(mean[0]-mean[1]) / math.Sqrt(variance[0]+variance[1])
}
