package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

// A message ID is a promise about one message: only its repeat is told that it is
// stored, and whoever else uses the ID learns that nothing of theirs is.
func TestAMessageIDIsOneProducersAndOneContents(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start()
		for name, story := range map[string]func(*testing.T, *process){
			"only a repeat of the message is a duplicate":   repeats,
			"each line of a batch is compared":              repeatedLines,
			"a batch may hold many messages of one ID":      manyOfOneID,
			"of fifty messages with one ID one is stored":   func(t *testing.T, p *process) { fiftyOfOneID(t, []*process{p}) },
			"a payload of the largest size is compared":     largeRepeats,
			"another producer learns only that it is taken": squatted,
		} {
			t.Run(name, func(t *testing.T) { parallel(t); story(t, p) })
		}
	})
}

// first is a message with everything that is compared.
func first(changes ...string) (headers []string) {
	all := map[string]string{"X-Broker-Message-ID": "order-1", "X-Broker-Message-Priority": "7",
		"Content-Type":              "application/json",
		"X-Broker-Metadata-Headers": "X-A, X-B", "X-A": "1", "X-B": "2"}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = changes[i+1]
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			headers = append(headers, name, all[name])
		}
	}
	return headers
}

func requireConflict(t *testing.T, r reply) {
	t.Helper()
	requireProblem(t, r, 409, "message_id_conflict")
	require.Empty(t, r.header.Values("Location"))
}

func repeats(t *testing.T, p *process) {
	sink := newSink(t, nil)
	s := p.stage(t, "k="+sink.URL)
	at := s.publish(`{"order":1}`, first()...)
	for _, same := range [][]string{
		first(),
		first("X-Broker-Metadata-Headers", "x-b,X-A", "X-Other", "not named"),
		first("X-Broker-Metadata-Headers", "X-A,X-B,X-Absent,Host,X-A"),
		first("X-Broker-Message-Priority", "007"),
	} {
		r := s.post(`{"order":1}`, same...)
		requireProblem(t, r, 409, "duplicate_message_id")
		require.Equal(t, at, r.header.Get("Location"))
	}
	for _, body := range []string{"", `{"order":2}`, `{"order":1} `, `{"order":1}` + "\n"} {
		requireConflict(t, s.post(body, first()...))
	}
	for _, other := range [][]string{
		first("X-Broker-Message-Priority", "8"),
		first("X-Broker-Message-Priority", ""),
		first("Content-Type", "application/json; charset=utf-8"),
		first("Content-Type", "application/JSON"),
		first("X-A", "2"),
		first("X-A", "2", "X-B", "1"),
		first("X-A", ""),
		first("X-Broker-Metadata-Headers", ""),
		first("X-Broker-Metadata-Headers", "X-A,X-B,X-C", "X-C", "3"),
	} {
		requireConflict(t, s.post(`{"order":1}`, other...))
	}
	s.awaitStatus(at, "DELIVERED")
	require.Equal(t, 201, s.post("another", "X-Broker-Message-ID", "Order-1").status, "another ID")
	eventually(t, "the delivery of the other", func() bool { return sink.count() == 2 })
	require.Equal(t, 1, sink.times(`{"order":1}`))
}

func squatted(t *testing.T, p *process) {
	s := p.stage(t)
	s.put("/producer/squatter", "token", "squatter-token")
	as := func(producer string, headers []string) []string {
		return append([]string{"X-Broker-Producer-ID", producer, "X-Broker-Producer-Token", producer + "-token"}, headers...)
	}
	require.Equal(t, 201, s.post("{}", as("squatter", first())...).status)
	requireConflict(t, s.post("{}", first()...))
	require.Equal(t, "squatter", s.message(s.path("/message/order-1")).ProducedBy)
	requireProblem(t, s.post("{}", as("squatter", first())...), 409, "duplicate_message_id")
}

// lines posts a batch with the headers of first, but for its ID.
func (s *stage) lines(lines ...string) []apitype.BatchResult {
	s.t.Helper()
	headers := first("X-Broker-Message-ID", "", "Content-Type", "application/x-ndjson")
	r := s.do("POST", s.path("/batch"), strings.Join(lines, "\n"), append(headers, producerTokens...)...)
	require.Equal(s.t, 200, r.status, r.body)
	return parseLines(s.t, r.body)
}

func requireLine(t *testing.T, r apitype.BatchResult, status int, code, location string) {
	t.Helper()
	require.Equal(t, status, r.Status, r)
	require.Equal(t, code, r.Code)
	require.Equal(t, location, r.Location)
}

func repeatedLines(t *testing.T, p *process) {
	s := p.stage(t)
	at := s.publish(`{"order":1}`, first()...)
	const plain = `{"MessageID":"order-1","ContentType":"application/json","Payload":"{\"order\":1}"}`
	got := s.lines(
		plain,
		`{"MessageID":"order-1","ContentType":"application/json","Headers":{"X-B":"2","X-A":"1"},"PayloadBase64":"eyJvcmRlciI6MX0="}`,
		`{"MessageID":"order-1","Payload":"{\"order\":1}"}`,
		`{"MessageID":"order-1","ContentType":"application/json","Payload":"{\"order\":2}"}`,
		`{"MessageID":"order-1","ContentType":"application/json","Priority":6,"Payload":"{\"order\":1}"}`,
		`{"MessageID":"order-1","ContentType":"application/json","Headers":{"X-A":"2"},"Payload":"{\"order\":1}"}`,
		`{"MessageID":"order-2","Payload":"2"}`,
		`{"MessageID":"order-2","Payload":"3"}`,
		`{"MessageID":"order-2","Payload":"2"}`,
		plain,
	)
	require.Len(t, got, 10)
	for _, i := range []int{0, 1, 9} {
		requireLine(t, got[i], 409, "duplicate_message_id", at)
	}
	for _, i := range []int{2, 3, 4, 5, 7} {
		requireLine(t, got[i], 409, "message_id_conflict", "")
	}
	requireLine(t, got[6], 201, "", s.path("/message/order-2"))
	requireLine(t, got[8], 409, "duplicate_message_id", s.path("/message/order-2"))
	require.Equal(t, "2", s.message(got[6].Location).Payload)
	requireProblem(t, s.post("2", "X-Broker-Message-ID", "order-2", "X-Broker-Message-Priority", "7",
		"X-Broker-Metadata-Headers", "X-B,X-A", "X-A", "1", "X-B", "2",
		"Content-Type", "application/octet-stream"), 409, "duplicate_message_id")
}

func manyOfOneID(t *testing.T, p *process) {
	s := p.stage(t)
	var lines []string
	for i := range 900 {
		lines = append(lines, fmt.Sprintf(`{"MessageID":"m","Payload":"%03d"}`, i%300))
	}
	// Two transactions may be under way, so which line is first is not promised.
	got := s.lines(lines...)
	winner := slices.IndexFunc(got, func(r apitype.BatchResult) bool { return r.Status == 201 })
	require.GreaterOrEqual(t, winner, 0)
	for i, r := range got {
		switch {
		case i == winner:
			requireLine(t, r, 201, "", s.path("/message/m"))
		case i%300 == winner%300:
			requireLine(t, r, 409, "duplicate_message_id", s.path("/message/m"))
		default:
			requireLine(t, r, 409, "message_id_conflict", "")
		}
	}
	require.Equal(t, fmt.Sprintf("%03d", winner%300), s.message(s.path("/message/m")).Payload)
}

func largeRepeats(t *testing.T, p *process) {
	s := p.stage(t)
	large := strings.Repeat("\x00'\\ü", 4<<20/5)
	// A slow machine takes longer for so much than a publish waits: then it is sent again.
	post := func(payload string) (r reply) {
		eventually(t, "an answer", func() bool {
			r = s.post(payload, "X-Broker-Message-ID", "large")
			return r.status != 503
		})
		return r
	}
	r := post(large)
	if r.status != 201 { // an earlier try has stored it
		requireProblem(t, r, 409, "duplicate_message_id")
	}
	at := r.header.Get("Location")
	r = post(large)
	requireProblem(t, r, 409, "duplicate_message_id")
	require.Equal(t, at, r.header.Get("Location"))
	requireConflict(t, post(large[:len(large)-1]+"x"))
	requireConflict(t, post("x"+large[1:]))
	requireConflict(t, post(large[1:]))
}

// fiftyOfOneID posts fifty messages under each of some IDs, ten contents, five
// times each, half of them in batches, everywhere at once.
func fiftyOfOneID(t *testing.T, ps []*process) {
	s := ps[0].stage(t)
	const ids, contents, each = 6, 10, 5
	type answer struct {
		content        int
		status         int
		code, location string
	}
	answers := make([][]answer, ids)
	var failed []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n := range ids * contents * each {
		id, content := n%ids, n/ids%contents
		wg.Go(func() {
			a := answer{content: content}
			key := fmt.Sprintf("id-%d", id)
			var r reply
			var err error
			if n%2 == 0 {
				r, err = ps[n%len(ps)].ask("POST", s.path("/broadcast"), fmt.Sprint("content ", content),
					append([]string{"X-Broker-Message-ID", key, "Content-Type", "text/plain"}, producerTokens...)...)
				a.status, a.location = r.status, r.header.Get("Location")
				if r.status == 409 {
					a.code, _ = r.json(t)["code"].(string)
				}
			} else {
				line := fmt.Sprintf(`{"MessageID":%q,"ContentType":"text/plain","Payload":"content %d"}`, key, content)
				if r, err = ps[n%len(ps)].ask("POST", s.path("/batch"), line,
					append([]string{"Content-Type", "application/x-ndjson"}, producerTokens...)...); err == nil {
					for _, l := range parseLines(t, r.body) {
						a.status, a.code, a.location = l.Status, l.Code, l.Location
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			answers[id] = append(answers[id], a)
			if err != nil {
				failed = append(failed, err)
			}
		})
	}
	wg.Wait()
	require.Empty(t, failed)
	for id, got := range answers {
		at := s.path("/message/id-", fmt.Sprint(id))
		stored := s.message(at).Payload
		created := 0
		for _, a := range got {
			switch mine := fmt.Sprint("content ", a.content) == stored; {
			case a.status == 201:
				created++
				require.True(t, mine, "%v was stored, not %s", a, stored)
				require.Equal(t, at, a.location)
			case mine:
				require.Equal(t, answer{a.content, 409, "duplicate_message_id", at}, a)
			default:
				require.Equal(t, answer{a.content, 409, "message_id_conflict", ""}, a)
			}
		}
		require.Equal(t, 1, created, at)
		require.Len(t, got, contents*each)
	}
}
