package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// as returns a context of a request that makes a change of some resource. Its entries show names and states.
func (f *fixture) as(who, action, resource string) context.Context {
	d := auditlog.NewDeed(who, "192.0.2.7", action, resource)
	d.Portray = func(row any) any {
		switch r := row.(type) {
		case durable.Channel:
			return map[string]any{"Name": r.Name, "Paused": r.Paused}
		case durable.Consumer:
			return map[string]any{"ID": r.ID, "State": r.State.String()}
		case durable.Redriving:
			return map[string]any{"State": r.State.String()}
		}
		return nil
	}
	return auditlog.With(f.ctx, d)
}

// entries returns the whole audit log, after the check of its chain.
func (f *fixture) entries(t *testing.T) (all []auditlog.Entry) {
	t.Helper()
	var v auditlog.Verifier
	for first := uint64(0); ; {
		page, next, err := f.AuditEntries(f.ctx, durable.AuditQuery{First: first, Limit: 7})
		require.NoError(t, err)
		for i := range page {
			require.NoError(t, v.Next(&page[i]))
		}
		if all = append(all, page...); next == 0 {
			break
		}
		first = next
	}
	head, err := f.AuditHead(f.ctx)
	require.NoError(t, err)
	no, hash := v.Head()
	require.Equal(t, head.No, no)
	require.Equal(t, head.Hash, hash)
	return all
}

// said are the entries in one line each.
func said(all []auditlog.Entry) (lines []string) {
	for _, e := range all {
		lines = append(lines, strings.Join([]string{e.Who, e.Action, e.Resource, string(e.Before), string(e.After)}, " "))
	}
	return lines
}

var auditTests = map[string]func(*testing.T, *fixture){
	"a change has one entry, in its transaction": func(t *testing.T, f *fixture) {
		ch, ks := f.channel(t, "c", 1)
		require.Empty(t, f.entries(t), "nobody is named in the contexts so far")
		name := ptr("Orders")
		_, _, err := f.PutChannel(f.as("ann", "put channel", "/channel/c"), durable.Put{ID: "c", Name: name})
		require.NoError(t, err)
		_, _, err = f.PutChannel(f.as("ann", "put channel", "/channel/c"), durable.Put{ID: "c", Name: name})
		require.NoError(t, err, "it changes nothing")
		_, _, err = f.PutChannel(f.as("ann", "put channel", "/channel/c"), durable.Put{ID: "c", Name: ptr("x"),
			Exists: ptr(false)})
		require.ErrorIs(t, err, durable.ErrPrecondition)
		_, _, err = f.SetChannelPaused(f.as("bob", "pause channel", "/channel/c"), "c", true)
		require.NoError(t, err)
		_, _, err = f.SetConsumerState(f.as("bob", "pause consumer", "/channel/c/consumer/k0"), durable.StateChange{
			ConsumerNo: ks[0].No, From: []durable.ConsumerState{durable.StateActive}, To: durable.StatePaused})
		require.NoError(t, err)
		require.NoError(t, f.EndHolds(f.as("bob", "resume consumer", "/channel/c/consumer/k0"), []uint32{ks[0].No}))
		_, err = f.DeleteConsumer(f.as("bob", "delete consumer", "/channel/c/consumer/k0"), "c", durable.Put{ID: "k0"})
		require.NoError(t, err)
		require.Equal(t, []string{
			`ann put channel /channel/c {"Name":"c","Paused":false} {"Name":"Orders","Paused":false}`,
			`bob pause channel /channel/c {"Name":"Orders","Paused":false} {"Name":"Orders","Paused":true}`,
			`bob pause consumer /channel/c/consumer/k0 {"ID":"k0","State":"ACTIVE"} {"ID":"k0","State":"PAUSED"}`,
			`bob delete consumer /channel/c/consumer/k0 {"ID":"k0","State":"PAUSED"} `,
		}, said(f.entries(t)))
		now, err := f.NowMs(f.ctx)
		require.NoError(t, err)
		for _, e := range f.entries(t) {
			require.Equal(t, "192.0.2.7", e.From)
			require.InDelta(t, now, e.AtMs, 600_000)
		}
		require.NotZero(t, ch.No)
	},
	"a request of many steps has one entry": func(t *testing.T, f *fixture) {
		k, id := f.jobs(t, 6)
		for i := range id {
			f.record(t, deadOf(k, id[i], int64(1000+i), 500, "status 500"))
		}
		ctx := f.as("ann", "redrive dead letters", "/channel/c/consumer/k0")
		auditlog.Of(ctx).Params = map[string]string{"reason": "any"}
		for i := range id {
			moved, err := f.Redrive(ctx, k, id[i:i+1], 5000)
			require.NoError(t, err)
			require.Len(t, moved, 1)
		}
		require.NoError(t, f.Audit(ctx), "it is written")
		require.Equal(t, []string{`ann redrive dead letters /channel/c/consumer/k0  {"reason":"any"}`},
			said(f.entries(t)))
	},
	"what changes no row is written before it is done": func(t *testing.T, f *fixture) {
		require.NoError(t, f.Audit(f.ctx), "nobody is named")
		require.NoError(t, f.Audit(f.as("ann", "retry consumer", "/channel/c/consumer/k0")))
		require.Equal(t, []string{"ann retry consumer /channel/c/consumer/k0  "}, said(f.entries(t)))
	},
	"brokers append to one chain": func(t *testing.T, f *fixture) {
		const each, writers = 12, 8
		_, ks := f.channel(t, "c", writers)
		race(writers, func(i int) {
			for n := range each {
				ctx := f.as(fmt.Sprint("writer ", i), fmt.Sprint("do ", n), "/channel/c")
				var err error
				switch n % 3 {
				case 0:
					err = f.Audit(ctx)
				case 1:
					_, _, err = f.PutConsumer(ctx, durable.ConsumerPut{Put: durable.Put{ID: ks[i].ID, Name: ptr(fmt.Sprint(n))},
						ChannelID: "c"})
				case 2:
					_, err = f.CreateRedriving(ctx, durable.Redriving{DeadSelection: durable.DeadSelection{ConsumerNo: ks[i].No}},
						nil)
				}
				if err != nil {
					t.Errorf("writer %d, change %d: %v", i, n, err)
				}
			}
		})
		all := f.entries(t)
		require.Len(t, all, each*writers)
		next := map[string]int{}
		for _, e := range all {
			require.Equal(t, fmt.Sprint("do ", next[e.Who]), e.Action, "the changes of one writer are in their order")
			next[e.Who]++
		}
	},
	"pages of the audit log": func(t *testing.T, f *fixture) {
		for i := range 12 {
			resource := "/channel/a"
			switch i % 4 {
			case 1:
				resource = "/channel/a/consumer/k"
			case 2:
				resource = "/channel/ab"
			case 3:
				resource = "/producer/a_"
			}
			require.NoError(t, f.Audit(f.as("ann", fmt.Sprint(i), resource)))
		}
		all := f.entries(t)
		list := func(q durable.AuditQuery) (out []string) {
			t.Helper()
			for {
				page, next, err := f.AuditEntries(f.ctx, q)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), q.Limit)
				for _, e := range page {
					out = append(out, e.Action)
				}
				if next == 0 {
					return out
				}
				q.First = next
			}
		}
		require.Equal(t, []string{"0", "1", "4", "5", "8", "9"}, list(durable.AuditQuery{Resource: "/channel/a", Limit: 2}))
		require.Equal(t, []string{"9", "8", "5", "4", "1", "0"}, list(durable.AuditQuery{Resource: "/channel/a", Limit: 4,
			Back: true}))
		require.Equal(t, []string{"3", "7", "11"}, list(durable.AuditQuery{Resource: "/producer/a_", Limit: 3}))
		require.Empty(t, list(durable.AuditQuery{Resource: "/channel", Limit: 3, ToMs: 1}))
		require.Len(t, list(durable.AuditQuery{Resource: "/channel", Limit: 3}), 9)
		from, to := all[3].AtMs, all[11].AtMs
		var want []string
		for _, e := range all {
			if e.AtMs >= from && e.AtMs < to {
				want = append(want, e.Action)
			}
		}
		require.Equal(t, want, list(durable.AuditQuery{FromMs: from, ToMs: to, Limit: 5}))
		require.Empty(t, list(durable.AuditQuery{FromMs: to + 1, Limit: 5}))
		require.Equal(t, []string{"11"}, list(durable.AuditQuery{First: 12, Limit: 5}))
		require.Empty(t, list(durable.AuditQuery{First: 13, Limit: 5}))
	},
	"a page of large entries is short": func(t *testing.T, f *fixture) {
		for range 20 {
			d := auditlog.NewDeed("ann", "", "put", "/channel/c")
			d.Params = strings.Repeat("x", 65_000)
			require.NoError(t, f.Audit(auditlog.With(f.ctx, d)))
		}
		page, next, err := f.AuditEntries(f.ctx, durable.AuditQuery{Limit: 100})
		require.NoError(t, err)
		require.Len(t, page, 16)
		require.EqualValues(t, 17, next)
		require.Len(t, f.entries(t), 20)
	},
	"an entry is bounded": func(t *testing.T, f *fixture) {
		d := auditlog.NewDeed(strings.Repeat("w", 5000), strings.Repeat("f", 5000), strings.Repeat("a", 5000),
			strings.Repeat("\u00e9", 5000))
		d.Params = strings.Repeat("\"\u00e9\x01", 40_000)
		require.NoError(t, f.Audit(auditlog.With(f.ctx, d)))
		all := f.entries(t)
		require.Len(t, all, 1)
		require.Len(t, all[0].Who, 1024)
		require.LessOrEqual(t, len(all[0].After), auditlog.MostBytes)
		require.Contains(t, string(all[0].After), `{"Cut":true,"Bytes":`)
	},
}
