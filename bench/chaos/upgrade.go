//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// An Upgrade is the replacement of the brokers' program by a newer one.
type Upgrade struct {
	Brokers  int   // that were replaced; 0: the campaign has one program
	From, To int64 // versions of the tables
}

func (u Upgrade) String() string {
	if u.Brokers == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, %d - %d", u.Brokers, u.From, u.To)
}

// add sums up campaigns.
func (u *Upgrade) add(o Upgrade) {
	if o.Brokers > 0 {
		u.Brokers, u.From, u.To = u.Brokers+o.Brokers, o.From, o.To
	}
}

// rowOfUpgrades prints what was upgraded, if anything was.
func rowOfUpgrades(all []*Verdict, row func(string, func(*Verdict) string)) {
	if slices.ContainsFunc(all, func(v *Verdict) bool { return v.Upgrade.Brokers > 0 }) {
		row("brokers upgraded, tables from and to", func(v *Verdict) string { return v.Upgrade.String() })
	}
}

// upgrade replaces the program of each broker after a while, as docs/operate/upgrading.md tells an operator
// to: stop it, start the new one, wait until it is ready, then the next. The first new broker changes the
// tables. Between two brokers both programs work on them for a while, with the load and the faults.
//
// The programs of all brokers change at one moment, at which none of them starts: an old program that is
// started on new tables refuses, as it should.
func (r *rig) upgrade(ctx context.Context, after, each time.Duration, say func(format string, args ...any)) error {
	if r.next == "" {
		return nil
	}
	pause(ctx, after)
	from, err := r.tables(ctx)
	if err != nil {
		return err
	}
	for _, n := range r.nodes {
		n.mu.Lock()
	}
	for _, n := range r.nodes {
		n.program = r.next
	}
	before := make([]int, len(r.nodes))
	for i, n := range r.nodes {
		before[i] = n.starts
		n.mu.Unlock()
	}
	for i, n := range r.nodes {
		say("%s is upgraded", n.name)
		if err := r.strike(ctx, r.replacement(n, before[i])); err != nil {
			return err
		}
		pause(ctx, each)
	}
	to, err := r.tables(ctx)
	r.mu.Lock()
	r.upgraded = Upgrade{Brokers: len(r.nodes), From: from, To: to}
	r.mu.Unlock()
	return err
}

// replacement stops a broker and starts it again, unless a fault did that since it was started for the
// before-th time.
func (r *rig) replacement(n *node, before int) blow {
	f := Fault{Kind: "broker upgraded", Detail: n.name, Broker: n.no, Channel: unspecified}
	return blow{f, func(ctx context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.running() && n.starts == before && !n.stop(stopWithin) {
			r.note("unclean stop", "%s did not end with code 0 within %v of SIGTERM", n.name, stopWithin)
		}
		return n.up(context.WithoutCancel(ctx))
	}}
}

// tables is the version of the tables, read between the faults of MySQL.
func (r *rig) tables(ctx context.Context) (version int64, err error) {
	r.storeMu.Lock()
	defer r.storeMu.Unlock()
	err = r.db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM "+database+".goose_db_version").Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("the version of the tables: %w", err)
	}
	return version, nil
}
