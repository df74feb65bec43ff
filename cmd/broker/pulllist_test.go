package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func limitRules(t *testing.T, p *process) {
	s := p.stage(t, "k")
	for i := range 120 {
		s.publish(strconv.Itoa(i))
	}
	eventually(t, "a hundred jobs", func() bool { return len(s.queued("k", "limit=100")) == 100 })
	for query, want := range map[string]int{"": 25, "limit=0": 0, "limit=1": 1, "limit=100": 100, "limit=101": 100,
		"limit=1000000":                 100,
		"limit=99999999999999999999999": 100} {
		require.Len(t, s.queued("k", query), want, query)
	}
	for _, query := range []string{"limit=-1", "limit=abc", "limit=", "limit=1.5", "limit=0x10", "limit=%20",
		"limit=-99999999999999999999999"} {
		r := s.do("GET", s.path("/consumer/k/queued-jobs?", query), "", consumerTokens("k")...)
		requireProblem(t, r, 400, "invalid_limit")
	}
	for _, after := range []string{"x", "1", ".", "-1.00000000000000000000", "zzzzzzzzzzzz.00000000000000000000",
		"1.short"} {
		r := s.do("GET", s.path("/consumer/k/queued-jobs?after=", after), "", consumerTokens("k")...)
		requireProblem(t, r, 400, "invalid_cursor")
	}
}

// walkPages follows the links of a list; between is called after each page.
func walkPages(s *stage, consumer string, limit int, between func(page []apitype.QueuedJob)) []apitype.QueuedJob {
	s.t.Helper()
	var all []apitype.QueuedJob
	next := s.path("/consumer/", consumer, "/queued-jobs?limit=", strconv.Itoa(limit))
	for next != "" {
		l := s.page(consumer, next)
		require.LessOrEqual(s.t, len(l.Result), limit)
		all = append(all, l.Result...)
		between(l.Result)
		next = l.Pages.Next
	}
	return all
}

func pullPages(t *testing.T, p *process) {
	s := p.stage(t, "k")
	const n = 130
	for i := range n {
		s.publish(strconv.Itoa(i), "X-Broker-Message-Priority", strconv.Itoa(i%3))
	}
	last := s.path("/consumer/k/queued-jobs?limit=100")
	eventually(t, "all jobs", func() bool { return len(walkPages(s, "k", 100, func([]apitype.QueuedJob) {})) == n })
	require.NotEmpty(t, s.page("k", last).Pages.Next)
	for _, limit := range []int{7, 26, 100} {
		all := walkPages(s, "k", limit, func([]apitype.QueuedJob) {})
		requireOrdered(t, all)
		requireDistinct(t, all, n)
	}
	// A job that is claimed between two pages, the very last of the page
	// included, takes no other job's place in the list.
	all := walkPages(s, "k", 20, func(page []apitype.QueuedJob) {
		for _, i := range []int{0, len(page) / 2, len(page) - 1} {
			if i >= 0 && i < len(page) {
				s.move("k", page[i].ID, to("INFLIGHT"))
			}
		}
	})
	requireDistinct(t, all, n)
	require.Less(t, len(walkPages(s, "k", 100, func([]apitype.QueuedJob) {})), n-15, "claimed jobs are not listed")
	require.Empty(t, s.page("k", s.path("/consumer/k/queued-jobs?limit=0")).Pages)
}

func requireDistinct(t *testing.T, jobs []apitype.QueuedJob, n int) {
	t.Helper()
	seen := map[string]bool{}
	for _, j := range jobs {
		seen[j.ID] = true
	}
	require.Len(t, jobs, n)
	require.Len(t, seen, n)
}

// requireOrdered checks priority descending, oldest first: IDs ascend with time.
func requireOrdered(t *testing.T, jobs []apitype.QueuedJob) {
	t.Helper()
	for i := 1; i < len(jobs); i++ {
		a, b := jobs[i-1], jobs[i]
		require.True(t, a.Priority > b.Priority || a.Priority == b.Priority && a.ID < b.ID,
			"place %d: %s of priority %d stands before %s of priority %d", i, a.ID, a.Priority, b.ID, b.Priority)
	}
}

func pullOrder(t *testing.T, p *process) {
	s := p.stage(t, "k")
	priorities := []int{0, 5, 1023, 5, 0, 1, 1022, 1023, 512, 0, 5, 1}
	for i, priority := range priorities {
		s.publish(fmt.Sprint(i), "X-Broker-Message-Priority", strconv.Itoa(priority))
	}
	var order []string
	for _, j := range s.awaitQueued("k", len(priorities)) {
		order = append(order, j.Message.Payload)
	}
	require.Equal(t, []string{"2", "7", "6", "8", "1", "3", "10", "5", "11", "0", "4", "9"}, order)
	// The list is a look: it claims nothing, and whoever looks sees the same.
	first := s.queued("k", "limit=3")
	require.True(t, slices.EqualFunc(first, s.queued("k", "limit=3"), func(a, b apitype.QueuedJob) bool {
		return a.ID == b.ID
	}))
}
