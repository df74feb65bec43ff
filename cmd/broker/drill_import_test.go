package main

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-broker/penstock/internal/test/oldbroker"
)

// BenchmarkDrillImport moves JOBS messages of the older implementation, one job each: of a hundred one is dead, one is
// open, and the others are delivered. The second import looks at all of it again and finds nothing new:
//
//	make drills DRILL=Import JOBS=1000000
//
// It fails when a message, a delivery or a dead letter is missing afterwards, or is there twice.
func BenchmarkDrillImport(b *testing.B) {
	for b.Loop() {
		r := newRig(b)
		n := drillJobs(b) / 100 * 100
		old := oldbroker.At(b, r.mysql.DSN())
		old.Producer("till", "till-token")
		old.Channel("orders", "orders-token")
		consumer := old.Consumer("orders", "billing", 0)
		begun := time.Now()
		old.Fill(n, "orders", "till", consumer)
		r.say("the older implementation has %d messages, in %.0f s", n, time.Since(begun).Seconds())

		for _, run := range []string{"first", "again"} {
			begun = time.Now()
			_, said, end := r.imports("broker import webhook-broker --dsn " + old.DSN)
			if code := end(); code != 0 {
				b.Fatalf("exit %d: %s", code, said)
			}
			took := time.Since(begun).Seconds()
			r.report(run+"-s", took, fmt.Sprintf("%.0f messages a second", float64(n)/took))
			r.say("%s", strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "\n        "))
		}
		db, err := sql.Open("mysql", strings.TrimPrefix(r.env[0], "BROKER_MYSQL_DSN="))
		if err != nil {
			b.Fatal(err)
		}
		for what, want := range map[string]int{"messages": n, "dead_jobs": n / 100, "deliveries": n / 100 * 98} {
			var have int
			if err := db.QueryRow("SELECT COUNT(*) FROM " + what).Scan(&have); err != nil || have != want {
				b.Fatalf("%d %s instead of %d: %v", have, what, want, err)
			}
		}
		_ = db.Close()
		p := r.start()
		r.say("%s", strings.TrimSpace(p.do("GET", "/job-status", "").body))
		p.stop()
	}
}
