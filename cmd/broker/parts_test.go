package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/servers"
	"github.com/penstock-broker/penstock/internal/test/tables"
)

// severalStores is a world with the stores two and three beside the first one.
func severalStores(t *testing.T) (w *world, dsns map[string]string) {
	w = realWorld(t).with(quick...)
	dsns = map[string]string{"two": tables.MySQL(t), "three": tables.MySQL(t)}
	dsns[""] = w.setting("BROKER_MYSQL_DSN")
	return w.with("BROKER_DATA_DIR="+t.TempDir(), "BROKER_ALLOW_DELETE=true",
		"BROKER_MYSQL_DSNS=two="+dsns["two"]+",three="+dsns["three"]), dsns
}

// stored counts the messages in a database.
func stored(t *testing.T, dsn string) (n int) {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM messages").Scan(&n))
	return n
}

// placed puts a channel of a stage into a store.
func (s *stage) placed(store string, consumers ...string) *stage {
	s.t.Helper()
	of := &stage{process: s.process, channel: s.channel + "-" + store}
	of.put(of.path(), "token", "c-token", "store", store)
	for _, k := range consumers {
		of.join(k)
	}
	return of
}

func (s *stage) form(path string, fields ...string) reply {
	s.t.Helper()
	return s.do("PUT", path, strings.Join(fields, "&"), "Content-Type", "application/x-www-form-urlencoded")
}

// A channel lives in the store that it names: its messages are there alone, and everything that a client does with it
// is as in the first one.
func TestAChannelLivesInTheStoreThatItNames(t *testing.T) {
	parallel(t)
	w, dsns := severalStores(t)
	sink := newSink(t, nil)
	p := w.start()
	s := p.stage(t, "push="+sink.URL, "pull")
	two := s.placed("two", "push="+sink.URL, "pull")
	three := s.placed("three", "pull")
	for _, of := range []*stage{s, two, three} {
		for i := range 3 {
			of.publish(fmt.Sprint(of.channel, " ", i))
		}
		of.awaitQueued("pull", 3)
		job := of.queued("pull", "limit=1")[0].ID
		require.Equal(t, 202, of.move("pull", job, `{"NextState":"INFLIGHT"}`).status)
		require.Equal(t, 202, of.move("pull", job, `{"NextState":"DELIVERED"}`).status)
	}
	eventually(t, "the deliveries", func() bool { return sink.count() == 6 })
	for store, dsn := range dsns {
		require.Equal(t, 3, stored(t, dsn), store)
	}
	require.NotContains(t, s.do("GET", s.path(), "").body, `"Store"`)
	require.Equal(t, "two", two.do("GET", two.path(), "").json(t)["Store"])

	requireProblem(t, two.form(two.path(), "store=three"), 400, "store_fixed")
	requireProblem(t, s.form(s.path(), "store=two"), 400, "store_fixed")
	requireProblem(t, s.form("/channel/new", "store=four"), 400, "invalid_store")
	require.Equal(t, 200, two.form(two.path(), "store=two").status)
	require.Equal(t, 200, two.form(two.path(), "name=Second").status)
	require.Equal(t, 404, s.do("GET", "/channel/new", "").status, "nothing was made")
	list := s.do("GET", "/channels?size=100", "").body
	for _, of := range []*stage{s, two, three} {
		require.Equal(t, 1, strings.Count(list, `"`+of.path()+`"`), list)
	}
	require.Equal(t, 1, strings.Count(list, "/channel/~alerts"))
	first := s.do("GET", "/channels?size=2", "").json(t)
	require.Equal(t, []any{s.path(), three.path()}, first["Result"])

	require.Contains(t, two.do("GET", two.path("/consumer/pull/why"), "").body, `"Summary"`)
	require.Contains(t, two.do("GET", "/ui"+two.path(), "").body, "Second")
	require.Contains(t, s.do("GET", "/ui/channels?store=two", "").body, two.channel)
	require.NotContains(t, s.do("GET", "/ui/channels", "").body, two.channel)
	chosen := s.do("GET", "/ui/?store=two", "")
	require.Contains(t, chosen.body, "<b>two</b>")
	cookie, _, _ := strings.Cut(chosen.header.Get("Set-Cookie"), ";")
	require.Contains(t, s.do("GET", "/ui/channels", "", "Cookie", cookie).body, two.channel)
	back := s.do("GET", "/ui/?store=", "", "Cookie", cookie)
	require.Contains(t, back.body, "<b>first</b>")
	require.Contains(t, back.header.Get("Set-Cookie"), "penstock-store=;")
	other := two.do("GET", "/ui"+two.path(), "").header.Get("Set-Cookie")
	require.Contains(t, other, "penstock-store=two;", "what the page leads to is of its store")
	require.Contains(t, s.do("GET", "/ui/scheduled?channel="+two.channel, "").body, "<b>two</b>")
	portal := two.do("POST", two.path("/consumer/pull/portal-link"), "").json(t)["URL"].(string)
	_, link, _ := strings.Cut(portal, "/ui/")
	require.Equal(t, 303, s.do("GET", "/ui/"+link, "").status, portal)
	require.Contains(t, s.do("GET", "/ui/groups", "", "Cookie", "penstock-store=two").body, "<b>first</b>")
	requireProblem(t, s.form("/group/x?store=two", "name=x"), 400, "unknown_parameter")
	requireProblem(t, s.form("/producer/x?store=two", "name=x"), 400, "unknown_parameter")
	require.NotContains(t, s.do("GET", "/consumers", "").body, two.channel)
	require.Contains(t, s.do("GET", "/consumers?store=two", "").body, two.channel)
	requireProblem(t, s.do("GET", "/consumers?store=four", ""), 400, "invalid_store")
	require.Regexp(t, `penstock_[a-z_]+\{[^}]*store="two"`, s.do("GET", "/metrics", "").body)
	require.Contains(t, s.do("GET", "/metrics", "").body, "penstock_stores_away 0")
	require.NotContains(t, p.log.String(), "panic")
}

// What is made in the first store holds in all of them once its answer is there: producers, rotations, API tokens,
// groups, and their ends.
func TestAllStoresHaveTheProducersGroupsAndTokensOfTheFirst(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	a, b := w.start(), w.start()
	s := a.stage(t)
	two := s.placed("two", "pull")
	publish := func(p *process, producer, token string) int {
		return p.do("POST", two.path("/broadcast"), "body", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
			producer, "X-Broker-Producer-Token", token).status
	}
	both := func(want int, producer, token string) {
		t.Helper()
		require.Equal(t, want, publish(a, producer, token))
		eventually(t, "the change at the other broker", func() bool { return publish(b, producer, token) == want })
	}
	s.put("/producer/late", "token", "late-token")
	both(201, "late", "late-token")
	rotated := s.do("POST", "/producer/late/rotate-token", "overlap=1h", "Content-Type",
		"application/x-www-form-urlencoded").json(t)["Token"].(string)
	both(201, "late", rotated)
	both(201, "late", "late-token")
	made := s.do("POST", "/tokens", `{"Name":"n","Scopes":["channel:`+two.channel+`"]}`, "Content-Type",
		"application/json").json(t)
	bearer := "Bearer " + made["Token"].(string)
	post := func(p *process) int {
		return p.do("POST", two.path("/broadcast"), "body", "Authorization", bearer, "X-Broker-Producer-ID", "p",
			"X-Broker-Producer-Token", "p-token").status
	}
	require.Equal(t, 201, post(a))
	eventually(t, "the token at the other broker", func() bool { return post(b) == 201 })
	require.Equal(t, 204, s.do("DELETE", "/tokens/"+made["ID"].(string), "").status)
	require.Equal(t, 403, post(a))
	eventually(t, "the end of the token at the other broker", func() bool { return post(b) == 403 }) // it polls
	require.Equal(t, 204, s.do("DELETE", "/producer/late", "").status)
	both(401, "late", rotated)

	s.put("/group/g", "maxChannels", "2")
	s.put(s.path(), "group", "g")
	two.put(two.path(), "group", "g")
	require.EqualValues(t, 2, s.do("GET", "/group/g", "").json(t)["Channels"])
	requireProblem(t, s.form("/channel/third", "store=three", "group=g"), 409, "group_full")
	require.Equal(t, 200, s.do("POST", "/group/g/pause", "").status)
	for _, p := range []*process{a, b} {
		requireProblem(t, two.on(p).post("x"), 503, "group_paused")
	}
	require.Equal(t, 200, s.do("POST", "/group/g/resume", "").status)
	two.publish("again")
	requireProblem(t, s.do("DELETE", "/group/g", ""), 409, "group_has_channels")
}

// The publish rate of a producer and of a group counts what is published to all stores, at all brokers.
func TestStoresShareThePublishRates(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	a, b := w.start(), w.start()
	s := a.stage(t)
	two, three := s.placed("two"), s.placed("three")
	s.put("/producer/p", "publishRate", "3/1h")
	s.publish("1")
	two.publish("2")
	three.on(b).publish("3")
	for _, of := range []*stage{s, two, three, two.on(b)} {
		requireProblem(t, of.post("x"), 429, "publish_rate_exceeded")
	}
	s.put("/producer/p", "publishRate", "")
	s.put("/group/g", "publishRate", "2/1h")
	two.put(two.path(), "group", "g")
	three.put(three.path(), "group", "g")
	for _, of := range []*stage{two, three} { // a GET reads the catalogue: the other broker knows of the group then
		require.Equal(t, "g", of.on(b).do("GET", of.path(), "").json(t)["Group"])
	}
	two.publish("4")
	three.on(b).publish("5")
	requireProblem(t, two.on(b).post("x"), 429, "publish_rate_exceeded")
	requireProblem(t, three.post("x"), 429, "publish_rate_exceeded")
	s.publish("the first channel carries no group")
}

// A wiped Redis is rebuilt from each store, and nothing of one store becomes a job of another.
func TestFaultRedisIsWipedAndRebuiltFromEachStore(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	p := w.start()
	s := p.stage(t, "pull")
	all := []*stage{s, s.placed("two", "pull"), s.placed("three", "pull")}
	for n, of := range all {
		for i := range n + 1 {
			of.publish(fmt.Sprint(of.channel, i))
		}
		of.awaitQueued("pull", n+1)
	}
	require.NoError(t, w.openRedis().FlushAll(t.Context()).Err())
	for n, of := range all {
		for _, job := range of.awaitQueued("pull", n+1) {
			require.Contains(t, job.Message.Payload, of.channel)
		}
	}
}

// However many brokers create a channel in however many stores at once, it is in one of them, and all say which.
func TestAChannelIsInOneStoreWhoeverCreatesIt(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	brokers := []*process{w.start(), w.start()}
	for round := range 10 {
		path := fmt.Sprint("/channel/race-", round)
		var wg sync.WaitGroup
		var created atomic.Int32
		for i := range 6 {
			wg.Go(func() {
				r, err := brokers[i%2].try("PUT", path, "store="+[]string{"", "two", "three"}[i/2], "Content-Type",
					"application/x-www-form-urlencoded")
				if err == nil && r.status == 201 {
					created.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, created.Load(), path)
		require.Equal(t, brokers[0].do("GET", path, "").json(t)["Store"], brokers[1].do("GET", path, "").json(t)["Store"])
		require.Equal(t, 1, strings.Count(brokers[0].do("GET", "/channels?size=100", "").body, `"`+path+`"`))
	}
	// A deleted channel may be made anew, in another store.
	p := brokers[0]
	for _, store := range []string{"two", "", "three"} {
		p.put("/channel/again", "store", store)
		shown, _ := brokers[1].do("GET", "/channel/again", "").json(t)["Store"].(string)
		require.Equal(t, store, shown)
		require.Equal(t, 204, p.do("DELETE", "/channel/again", "").status)
		require.Equal(t, 404, brokers[1].do("GET", "/channel/again", "").status)
	}
}

// A server of MySQL that is killed takes down its channels and no other, loses nothing that was acknowledged, and is
// there again when it is back.
func TestFaultAStoreIsKilledAndTheOthersGoOn(t *testing.T) {
	parallel(t)
	server := servers.StartMySQL(t)
	w := realWorld(t).with(quick...)
	w.with("BROKER_DATA_DIR="+t.TempDir(), "BROKER_MYSQL_DSNS=two="+server.DSN())
	sink := newSink(t, nil)
	p := w.start()
	s := p.stage(t, "push="+sink.URL)
	two := s.placed("two", "push="+sink.URL)

	var mu sync.Mutex
	acknowledged := map[string]bool{}
	refused := map[string]int{}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for _, of := range []*stage{s, two} {
		for lane := range 2 {
			load.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
					body := fmt.Sprint(of.channel, " ", lane, " ", i)
					r, err := of.try("POST", of.path("/broadcast"), body, producerTokens...)
					mu.Lock()
					switch {
					case err == nil && r.status == 201:
						acknowledged[body] = true
					case err == nil && of == two:
						refused[fmt.Sprint(r.status)]++
					default:
						refused["the first store"]++
					}
					mu.Unlock()
				}
			})
		}
	}
	time.Sleep(time.Second)
	server.Kill()
	eventually(t, "refusals", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return refused["503"] >= 3
	})
	for range 20 {
		s.publish("beside the dead one") // none of these waits for it
	}
	eventually(t, "the warning", func() bool { return strings.Contains(s.do("GET", "/readyz", "").body, "two") })
	require.Equal(t, 200, s.do("GET", "/readyz", "").status)
	server.Restart()
	eventually(t, "the store", func() bool { return two.post("back").status == 201 })
	time.Sleep(time.Second)
	close(stop)
	load.Wait()
	require.Zero(t, refused["the first store"], refused)
	eventually(t, "all that was acknowledged", func() bool {
		got := map[string]bool{}
		for _, r := range sink.all() {
			got[r.body] = true
		}
		for body := range acknowledged {
			if !got[body] {
				return false
			}
		}
		return true
	})

	// A broker starts without it, says so, and takes it in later.
	server.Kill()
	p.kill()
	again := w.start()
	s, two = s.on(again), two.on(again)
	s.publish("alone")
	r := two.post("x")
	requireProblem(t, r, 503, "unavailable")
	require.Equal(t, "1", r.header.Get("Retry-After"))
	require.NotContains(t, r.body, "tcp")
	requireProblem(t, two.form(two.path(), "name=x"), 503, "unavailable")
	requireProblem(t, s.form("/channel/fresh", "store=two"), 503, "unavailable")
	require.Contains(t, again.log.String(), "a store cannot be reached")
	require.Contains(t, s.do("GET", "/metrics", "").body, "penstock_stores_away 1")
	s.put("/producer/meanwhile", "token", "m-token")
	server.Restart()
	eventually(t, "the store", func() bool { return two.post("late").status == 201 })
	eventually(t, "a producer of meanwhile", func() bool {
		return again.do("POST", two.path("/broadcast"), "x", "X-Broker-Channel-Token", "c-token", "X-Broker-Producer-ID",
			"meanwhile", "X-Broker-Producer-Token", "m-token").status == http.StatusCreated
	})
	require.Equal(t, 0, again.stop())
}

// What would mix up stores refuses the start.
func TestStoresThatAreMixedUpRefuseTheStart(t *testing.T) {
	parallel(t)
	w, dsns := severalStores(t)
	p := w.start()
	s := p.stage(t)
	s.placed("two")
	require.Equal(t, 0, p.stop())
	refused := func(want string, env ...string) {
		t.Helper()
		p := w.launch(env...)
		p.awaitEnd()
		require.Contains(t, p.log.String(), want)
		require.NotContains(t, p.log.String(), "tcp(")
	}
	refused("were exchanged", "BROKER_MYSQL_DSNS=two="+dsns["three"]+",three="+dsns["two"])
	refused("does not name the store two", "BROKER_MYSQL_DSNS=three="+dsns["three"])
	refused("is the store of BROKER_MYSQL_DSN", "BROKER_MYSQL_DSNS=two="+dsns["two"]+",four="+dsns[""])
	refused("belongs into BROKER_MYSQL_DSNS", "BROKER_MYSQL_DSN="+dsns["two"], "BROKER_MYSQL_DSNS=")
	other := realWorld(t)
	other.start().stop()
	refused("of another installation", "BROKER_MYSQL_DSNS=two="+dsns["two"]+",five="+other.setting("BROKER_MYSQL_DSN"))
	for _, text := range []string{"x", "=dsn", "Two=" + dsns["two"], "two=" + dsns["two"] + ",two=" + dsns["three"]} {
		refused("BROKER_MYSQL_DSNS", "BROKER_MYSQL_DSNS="+text)
	}
	require.Equal(t, 0, w.start().stop())
}

// Consumers of other stores are alerted on the channel of all alerts, and producers hear there of the jobs.
func TestAlertsAndStatusEventsOfAllStoresAreOnTheChannelsOfTheFirst(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	ops, target := newSink(t, nil), newSink(t, func(int, received) int { return 410 })
	p := w.start()
	p.attach("ops", ops)
	s := p.stage(t)
	two := s.placed("two", "gone="+target.URL, "pull")
	s.put("/producer/p", "statusEvents", "all")
	two.publish("body")
	eventually(t, "the alert", func() bool {
		got, _ := alertsAt(t, ops, two.channel)
		return slices.ContainsFunc(got, func(a apitype.Alert) bool { return a.Event == "consumer.gone" })
	})
	two.awaitQueued("pull", 1)
	job := two.queued("pull", "limit=1")[0].ID
	require.Equal(t, 202, two.move("pull", job, `{"NextState":"INFLIGHT"}`).status)
	require.Equal(t, 202, two.move("pull", job, `{"NextState":"DELIVERED"}`).status)
	eventually(t, "the status event", func() bool {
		return strings.Contains(s.do("GET", "/channel/~status/messages?contains="+two.channel, "").body, "/message/status-")
	})
}

func TestDSNsOfOtherStores(t *testing.T) {
	all, err := parseDSNs("two=u:a,b=c@tcp(h:1)/d?x=1,y,three-3=u@tcp(h)/e")
	require.NoError(t, err)
	require.Equal(t, "u@tcp(h)/e", all["three-3"])
	require.Len(t, all, 3, "a comma before a name and an equals sign separates")
	for _, bad := range []string{"", "dsn", "1=d", "A=d", strings.Repeat("a", 33) + "=d", "a=d,a=e"} {
		_, err := parseDSNs(bad)
		require.Error(t, err, bad)
	}
}

// The other ways in do what they can, and say where they end: receipts of a journal, queues of SQS clients, and the
// commands that look at stores.
func TestOtherWaysInKnowTheStoreOfAChannel(t *testing.T) {
	parallel(t)
	w, dsns := severalStores(t)
	server := servers.StartMySQL(t)
	w.with("BROKER_MYSQL_DSNS=two=" + dsns["two"] + ",slow=" + server.DSN())
	p := w.start()
	s := p.stage(t)
	slow := s.placed("slow", "pull")
	slow.put(slow.path(), "ack", "journal", "latencyBudget", "20ms")
	require.Contains(t, []int{201, 202}, slow.post("before").status)
	server.Pause()
	r := slow.post("waits")
	require.Equal(t, 202, r.status, r.body)
	receipt := r.header.Get("Location")
	require.Contains(t, receipt, "/receipt/")
	require.Equal(t, 202, s.do("GET", receipt, "").status)
	s.publish("beside it")
	server.Resume()
	eventually(t, "the message", func() bool { return s.do("GET", receipt, "").status == 303 })
	require.Contains(t, s.do("GET", receipt, "").header.Get("Location"), slow.path("/message/"))
	requireProblem(t, s.do("GET", "/receipt/"+strings.Repeat("a", 32), ""), 404, "receipt_not_found")
	slow.awaitQueued("pull", 2)

	sqs := s.do("POST", "/", `{"QueueName":"pull"}`, "Content-Type", "application/x-amz-json-1.0", "X-Amz-Target",
		"AmazonSQS.CreateQueue")
	require.NotContains(t, sqs.body, "another store", "it is a queue of another channel")
	for _, ask := range []string{"GetQueueAttributes", "ReceiveMessage"} {
		r := s.do("POST", "/", `{"QueueUrl":"`+s.base+"/sqs/"+slow.channel+`/pull"}`, "Content-Type",
			"application/x-amz-json-1.0", "X-Amz-Target", "AmazonSQS."+ask)
		require.Equal(t, 400, r.status)
		require.Contains(t, r.body, "in another store")
	}
	require.Equal(t, 0, p.stop())

	_, out, _ := w.command("check")
	require.Contains(t, out, "store slow: it answers")
	require.Contains(t, out, "store two: the tables have version")
	code, _, stderr := w.command("migrate")
	require.Zero(t, code, stderr)
}

// What a broker that is gone left in the journals of all stores is stored by one command, each in its store; a store
// that the settings do not name is no reason to forget a journal.
func TestFaultTheJournalsOfAllStoresOfAKilledBrokerAreReplayedByACommand(t *testing.T) {
	parallel(t)
	first, second := servers.StartMySQL(t), servers.StartMySQL(t)
	redis := servers.StartRedis(t)
	w := (&world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + first.DSN(), "BROKER_REDIS_URL=" + redis.URL(),
		"BROKER_DATA_DIR=" + filepath.Join(t.TempDir(), "[data]")}}).with(quick...)
	names := "BROKER_MYSQL_DSNS=two=" + second.DSN()
	p := w.start(names)
	s := p.stage(t, "pull")
	all := []*stage{s, s.placed("two", "pull")}
	for _, of := range all {
		of.put(of.path(), "ack", "journal", "latencyBudget", "20ms")
		require.Contains(t, []int{201, 202}, of.post("before").status)
		of.awaitQueued("pull", 1)
	}
	first.Pause()
	second.Pause()
	for _, of := range all {
		r := of.post("waits")
		require.Equal(t, 202, r.status, r.body)
	}
	p.kill()
	first.Resume()
	second.Resume()
	dir := w.setting("BROKER_DATA_DIR")
	code, said := w.replay(dir)
	require.Equal(t, exitUsage, code)
	require.Contains(t, said, "a journal of the store two, which BROKER_MYSQL_DSNS does not name")
	w.with(names)
	code, said = w.replay(dir)
	require.Zero(t, code, said)
	require.Contains(t, said, "2 messages are stored, 0 cannot be, 0 are lost")
	p = w.with("BROKER_DATA_DIR=" + t.TempDir()).start()
	for _, of := range all {
		of.on(p).awaitQueued("pull", 2)
	}
}

// An access key leads an SQS client to the store of its channel, at each broker, and to nothing else there.
func TestAnAccessKeyLeadsAnSQSClientToTheStoreOfItsChannel(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	a, b := w.start(), w.start()
	s := a.stage(t, "pull")
	for _, of := range []*stage{s, s.placed("two", "pull")} {
		var key apitype.SQSKey
		made := of.do("POST", of.path("/sqs-key"), "")
		require.NoError(t, json.Unmarshal([]byte(made.body), &key))
		queue := `{"QueueUrl":"http://elsewhere/sqs/` + of.channel + `/pull"`
		for _, p := range []*process{a, b} {
			r := p.signed(key, "SendMessage", queue+`,"MessageBody":"for `+of.channel+`"}`)
			require.Equal(t, 200, r.status, r.body)
			require.Equal(t, `{"QueueUrls":["`+p.base+"/sqs/"+of.channel+`/pull"]}`, p.signed(key, "ListQueues", "{}").body)
			require.Equal(t, 403, p.signed(key, "GetQueueAttributes", `{"QueueUrl":"/sqs/other/pull"}`).status)
		}
		got := 0
		eventually(t, "both messages", func() bool {
			r := b.signed(key, "ReceiveMessage", queue+`,"MaxNumberOfMessages":10,"WaitTimeSeconds":1}`)
			got += strings.Count(r.body, `"for `+of.channel+`"`)
			return got == 2
		})
		other := key
		other.SecretAccessKey = "other"
		require.Contains(t, b.signed(other, "ListQueues", "{}").body, "SignatureDoesNotMatch")
		require.Equal(t, 204, of.do("DELETE", made.header.Get("Location"), "").status)
		require.Contains(t, a.signed(key, "ListQueues", "{}").body, "InvalidClientTokenId")
		eventually(t, "the end of the key at the other broker", func() bool {
			return strings.Contains(b.signed(key, "ListQueues", "{}").body, "InvalidClientTokenId")
		})
	}
}

// A queue of SQS clients is no second channel of the same ID.
func TestAnSQSClientMakesNoSecondChannel(t *testing.T) {
	parallel(t)
	w, _ := severalStores(t)
	p := w.start()
	s := p.stage(t)
	s.put("/channel/queue", "store", "two")
	r := s.do("POST", "/", `{"QueueName":"queue"}`, "Content-Type", "application/x-amz-json-1.0", "X-Amz-Target",
		"AmazonSQS.CreateQueue")
	require.Equal(t, 400, r.status, r.body)
	require.Contains(t, r.body, "in another store")
	require.Equal(t, 1, strings.Count(s.do("GET", "/channels?size=100", "").body, `"/channel/queue"`))

	seed := filepath.Join(t.TempDir(), "seed.ini")
	require.NoError(t, os.WriteFile(seed, []byte("[initial-channels]\nqueue=Queue\n"), 0o600))
	require.Equal(t, 0, p.stop())
	refused := w.launch("BROKER_SEED_FILE=" + seed)
	refused.awaitEnd()
	require.Contains(t, refused.log.String(), "is in the store two")
}

// While the first store is away, the channels of the others go on, and nothing about them is forgotten.
func TestFaultTheFirstStoreIsAwayAndTheOthersGoOn(t *testing.T) {
	parallel(t)
	server := servers.StartMySQL(t)
	redis := servers.StartRedis(t)
	w := (&world{t: t, redis: redis, env: []string{"BROKER_MYSQL_DSN=" + server.DSN(), "BROKER_REDIS_URL=" + redis.URL(),
		"BROKER_DATA_DIR=" + t.TempDir(), "BROKER_MYSQL_DSNS=two=" + tables.MySQL(t)}}).with(quick...)
	sink := newSink(t, nil)
	p := w.start()
	s := p.stage(t, "push="+sink.URL)
	two := s.placed("two", "push="+sink.URL)
	s.publish("first")
	server.Kill()
	for i := range 20 {
		two.publish(fmt.Sprint("two ", i))
	}
	eventually(t, "the deliveries", func() bool { return sink.count() >= 20 })
	require.Equal(t, 503, s.post("x").status)
	require.Equal(t, 503, s.form("/channel/fresh", "store=two").status)
	server.Restart()
	eventually(t, "the first store", func() bool { return s.post("back").status == 201 })
	eventually(t, "its deliveries", func() bool { return sink.times("first") > 0 && sink.times("back") > 0 })
	s.placed("two")
	require.Equal(t, 0, p.stop())
}
