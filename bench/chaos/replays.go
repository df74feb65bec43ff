//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
)

// The messages of the last replayedFor are replayed to replayedID every replayEvery. The copies are
// apart from the deliveries: each replay has each of its messages once.
const (
	replayedID  = "steady-0"
	replayedFor = 20 * time.Second
	replayEvery = 12 * time.Second
)

// replay begins replays until load ends.
func (r *rig) replay(load context.Context) {
	k := r.plan.numbered(replayedID)
	for turn := 0; ; turn++ {
		pause(load, replayEvery)
		if load.Err() != nil {
			return
		}
		// An answer that says no is none of interest: the last replay still runs, or a fault is on.
		base := "http://" + r.plan.Brokers[turn%len(r.plan.Brokers)]
		_ = administrator(base).Post(load, r.plan.path(k)+"/replay", map[string]string{"Only": "all",
			"From": time.Now().Add(-replayedFor).UTC().Format(time.RFC3339Nano)}, nil)
	}
}

// copied takes a copy of a replay. Its journal has, on disk before the answer,
//
//	Y replay seq hash time
func (s *sinks) copied(rc *fasthttp.RequestCtx, replay []byte, seq int64) {
	status := fasthttp.StatusNoContent
	no, err := strconv.ParseInt(string(replay), 10, 64)
	if err != nil || s.log.Add("Y", no, seq, hashOf(rc.PostBody()), time.Now()).Wait() != nil {
		status = fasthttp.StatusInsufficientStorage
	}
	rc.SetStatusCode(status)
}

// A Copy is a message that a replay has delivered.
type Copy struct {
	Replay, Seq int64
	Hash        string
}

// A Replay is a row of the table of replays.
type Replay struct {
	No              int64
	State           durable.ReplayState
	Delivered, Dead int64
}

// readReplays reads all replays of the campaign.
func (r *rig) readReplays(ctx context.Context, e *Evidence) error {
	rows, err := r.db.QueryContext(ctx, "SELECT no, state, delivered, dead FROM "+database+".replays")
	if err != nil {
		return fmt.Errorf("read replays: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p Replay
		if err := rows.Scan(&p.No, &p.State, &p.Delivered, &p.Dead); err != nil {
			return fmt.Errorf("read replays: %w", err)
		}
		e.Replays = append(e.Replays, p)
	}
	return rows.Err()
}

// replays checks that each replay has ended, and that its copies are those that it counts.
func (c *checker) replays() {
	copies := map[int64]map[int64]int{}
	for _, y := range c.e.Copies {
		if copies[y.Replay] == nil {
			copies[y.Replay] = map[int64]int{}
		}
		copies[y.Replay][y.Seq]++
		if s := c.e.Sent[y.Seq]; s == nil || s.Hash != y.Hash || len(c.rows[y.Seq]) != 1 {
			c.v.broken("corrupted", "replay %d delivered message %d, which is not stored like that", y.Replay, y.Seq)
		}
	}
	for _, p := range c.e.Replays {
		n := int64(len(copies[p.No]))
		switch {
		case p.State != durable.ReplayDone:
			c.v.broken("stuck", "replay %d is %s", p.No, p.State)
		case n < p.Delivered:
			c.v.broken("lost", "replay %d counts %d deliveries, and its consumer took %d", p.No, p.Delivered, n)
		case n > p.Delivered+p.Dead:
			c.v.broken("counter mismatches", "replay %d counts %d deliveries and %d dead, and its consumer took %d", p.No,
				p.Delivered, p.Dead, n)
		default:
			c.v.Replayed += p.Delivered
		}
		for _, times := range copies[p.No] {
			c.v.ReplayedAgain += int64(times - 1)
		}
	}
	if again := c.v.AnsweredAgain + c.v.ReplayedAgain; again > int64(c.v.Bound) {
		c.v.broken("unexplained duplicates", "%d replies and copies of replays exceed the %d deliveries under way at faults",
			again, c.v.Bound)
	}
}
