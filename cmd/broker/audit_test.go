package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// entries are the whole audit log of a broker; a test of broker ctl checks the chain.
func (p *process) entries(resource string) (all []apitype.AuditEntry) {
	p.t.Helper()
	for path := "/audit?size=7&resource=" + resource; path != ""; {
		page := answered[apitype.AuditList](p.t, p, "GET", path)
		all = append(all, page.Result...)
		path = page.Pages.Next
	}
	return all
}

// actions are the actions of entries, with their resources.
func actions(all []apitype.AuditEntry) (lines []string) {
	for _, e := range all {
		lines = append(lines, e.Action+" "+e.Resource)
	}
	return lines
}

// A broker that is killed loses no entry of a change that it answered, and the channel has each entry once.
func TestTheAuditLogOfBrokers(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_ALLOW_DELETE=true")
		s := p.stage(t)
		of := "/channel/" + s.channel
		require.Equal(t, 200, s.do("POST", of+"/pause", "").status)
		p.kill()
		p = w.start("BROKER_ALLOW_DELETE=true")
		s = s.on(p)
		require.Equal(t, []string{"put channel " + of, "pause channel " + of}, actions(p.entries(of)))
		require.Equal(t, "open management", p.entries(of)[0].Who)
		require.NotContains(t, p.do("GET", "/channel/~audit/messages", "").body, "/message/")

		desk := newSink(t, nil)
		const own = "/channel/~audit/consumer/desk"
		require.Equal(t, 201, p.put(own, "token", "desk-token", "callbackUrl", desk.URL).status)
		require.Equal(t, 200, s.do("POST", of+"/resume", "").status)
		told := func() (lines []string) { // each once: a delivery under way at a kill comes again
			seen := map[uint64]bool{}
			for _, r := range desk.all() {
				var e apitype.AuditEntry
				require.NoError(t, json.Unmarshal([]byte(r.body), &e))
				require.NotEmpty(t, e.Hash)
				if (e.Resource == of || e.Resource == own) && !seen[e.Number] {
					seen[e.Number] = true
					lines = append(lines, e.Action+" "+e.Resource)
				}
			}
			return lines
		}
		eventually(t, "the entries on ~audit", func() bool { return len(told()) >= 2 })
		p.kill()
		p = w.start("BROKER_ALLOW_DELETE=true")
		s = s.on(p)
		require.Equal(t, 200, s.do("POST", of+"/pause", "").status)
		eventually(t, "the entry after the start", func() bool { return len(told()) >= 3 })
		require.ElementsMatch(t, []string{"put consumer " + own, "resume channel " + of, "pause channel " + of}, told())

		require.Equal(t, 204, s.do("DELETE", own, "").status)
		require.Equal(t, 200, s.do("POST", of+"/resume", "").status)
		require.Equal(t, 201, p.put(own, "token", "desk-token", "callbackUrl", desk.URL).status)
		eventually(t, "the new consumer", func() bool { return len(told()) >= 4 })
		require.Equal(t, "put consumer "+own, told()[3], "what happened between is not told")
		require.Equal(t, 204, s.do("DELETE", own, "").status)
		require.NotContains(t, p.log.String(), "desk-token")
	})
}

func TestBrokersOnOneStoreHaveOneAuditLog(t *testing.T) {
	w := realWorld(t)
	brokers := []*process{w.start(), w.start(), w.start()}
	const each = 8
	var group sync.WaitGroup
	for i, p := range brokers {
		group.Go(func() {
			for n := range each {
				r, err := p.try("PUT", fmt.Sprintf("/channel/a%d", i), fmt.Sprint("name=", n), "Content-Type",
					apitype.MediaForm)
				if err != nil || !r.stored() && r.status != 200 {
					t.Errorf("broker %d: %v %v", i, r.status, err)
				}
			}
		})
	}
	group.Wait()
	out := newTerminal(t, brokers[0]).ok("broker ctl audit verify")
	require.Contains(t, out, "are one chain")
	for i := range brokers {
		require.Len(t, brokers[2-i].entries(fmt.Sprintf("/channel/a%d", i)), each)
	}
}

func TestCtlAudit(t *testing.T) {
	parallel(t)
	world := embeddedWorld(t)
	p := world.start()
	w := newTerminal(t, p)
	require.Contains(t, w.ok("broker ctl channel set orders name=Orders token=s3cret"), "orders")
	w.ok("broker ctl channel pause orders")
	w.ok("broker ctl channel set other name=Other")
	list := w.ok("broker ctl audit ls --resource channel/orders")
	require.Equal(t, 3, strings.Count(list, "\n"), list)
	require.Contains(t, list, "open management")
	require.Contains(t, list, "pause channel")
	require.Equal(t, 1, strings.Count(w.ok("broker ctl audit ls --limit 1 --json"), "\n"))
	require.Contains(t, w.run("broker ctl audit ls --from noon").stderr, "is no time")
	good := w.ok("broker ctl audit verify")
	require.Contains(t, good, "3 entries are one chain; the head is 3:")
	head := strings.TrimSpace(good[strings.LastIndexByte(good, ' '):])
	w.ok("broker ctl audit verify --head " + head)
	require.Contains(t, w.run("broker ctl audit verify --head 3:x").stderr, "is no NUMBER:HASH")
	wrong := w.run("broker ctl audit verify --head 2:" + head[2:])
	require.Equal(t, 2, wrong.code)
	require.Contains(t, wrong.stdout, "entry 2 is not the one")
	export := w.ok("broker ctl audit export > audit.ndjson && cat audit.ndjson")
	require.Equal(t, 3, strings.Count(export, "\n"))
	require.NotContains(t, export, "s3cret")
	require.Contains(t, w.ok("broker ctl audit verify --file audit.ndjson"), "3 entries")
	require.Contains(t, w.ok("broker ctl audit verify --file - --json < audit.ndjson"), `"OK":true,"Entries":3,`)
	require.Equal(t, 2, w.run("sed 's/Orders/orders/' audit.ndjson | broker ctl audit verify --file -").code)
	require.Equal(t, 2, w.run("head -n 2 audit.ndjson | broker ctl audit verify --file - --head "+head).code)
	require.Equal(t, 1, w.run("broker ctl audit verify --file none").code)
	require.Equal(t, 1, w.run("echo x | broker ctl audit verify --file -").code)
	require.Equal(t, 3, w.run("broker ctl audit verify --url http://127.0.0.1:1").code)

	require.Equal(t, 0, p.stop())
	db, err := sql.Open("sqlite", filepath.Join(world.setting("BROKER_DATA_DIR"), "penstock.db"))
	require.NoError(t, err)
	_, err = db.Exec("UPDATE audit SET who = CAST('nobody' AS BLOB) WHERE no = 2")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	p = world.start()
	w = newTerminal(t, p)
	broken := w.run("broker ctl audit verify")
	require.Equal(t, 2, broken.code)
	require.Contains(t, broken.stdout, "the audit log is broken: entry 2 ")
	require.Contains(t, w.run("broker ctl audit verify --json").stdout, `"OK":false,"Entries":1,`)
	w.ok("broker ctl channel resume orders") // a broken log takes entries
	require.Equal(t, 2, w.run("broker ctl audit verify").code)
}
