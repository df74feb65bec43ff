package pull

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/answer"
	"github.com/penstock-broker/penstock/internal/tool/share"
	"github.com/penstock-broker/penstock/redisq"
)

// What the answer to a claim costs beside the claim: a Redis call and a connection.
func BenchmarkClaimAnswer(b *testing.B) {
	for _, c := range []struct{ jobs, payload int }{{1, 100}, {20, 1 << 10}, {100, 1 << 10}, {500, 1 << 10}} {
		b.Run(fmt.Sprintf("%d of %d bytes", c.jobs, c.payload), func(b *testing.B) {
			bound := answer.NewBound(64 << 20)
			k := &durable.Consumer{No: 7}
			jobs := make([]claimedJob, c.jobs)
			for i := range jobs {
				m := &durable.Message{ID: ident.AtMillis(int64(i + 1)), Payload: bytes.Repeat([]byte("x"), c.payload),
					ContentType: "text/plain"}
				jobs[i] = claimedJob{lease: redisq.Lease{Token: "e.1", Attempt: 1}, msg: m, size: shownSize(m)}
			}
			var rc fasthttp.RequestCtx
			b.ReportAllocs()
			for b.Loop() {
				rc.Response.Reset()
				size, kept := sizeOf(jobs)
				held, err := answer.Open(bound, share.Consumer(k.No), size+kept)
				if err != nil {
					b.Fatal(err)
				}
				writeJSON(&rc, held, size, func(t *answer.Text) { appendClaimed(t, k, jobs, time.Unix(1, 0), "") })
			}
		})
	}
}
