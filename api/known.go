package api

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/publish"
	"github.com/penstock-broker/penstock/hotpath/pull"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/presence"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

// The request headers and query parameters that routes know. A request with another X-Broker- header
// or another parameter is refused: its sender expects an effect that it would not have.

// brokerPrefix is the prefix of the headers that the broker defines.
const brokerPrefix = "X-Broker-"

// commonHeaders are known to every route, and ignored where they mean nothing: those that say who
// calls, which clients set on all their requests, and those of the broker's own requests, which a relay
// between two brokers sends back.
var commonHeaders = []string{
	headerAdminToken, headerChannelToken, headerProducerID, headerProducerToken, headerConsumerID, headerConsumerToken,
	"X-Broker-Channel-ID", "X-Broker-Message-ID", "X-Broker-Message-Priority", "X-Broker-Job-ID", "X-Broker-Attempt",
	"X-Broker-Replay",
	"X-Broker-Metadata-Headers", "X-Broker-Ordering-Key", "X-Broker-Task", "X-Broker-In-Reply-To",
	"X-Broker-Response-Status",
	"X-Broker-Response-Truncated", "X-Broker-Made-By", "X-Broker-Jobs", push.TestHeader,
}

// CommonHeaders returns the headers that every route knows, for documentation and its tests.
func CommonHeaders() []string { return slices.Clone(commonHeaders) }

// The headers of routes that are no token, those with properties of messages from their table. Those that
// do not begin with X-Broker- are here because a refusal names the nearest one.
var (
	idHeaders, contentHeaders, timesHeaders = publish.PropertyHeaders()

	linesHeaders   = slices.Concat(contentHeaders, []string{"X-Broker-Signature"}, timesHeaders)
	bulkHeaders    = append([]string{"X-Broker-Bulk-Template", "X-Broker-Bulk-Rate"}, linesHeaders...)
	messageHeaders = slices.Concat(idHeaders, linesHeaders)
	requestHeaders = append([]string{"Prefer"}, messageHeaders...)
	workerHeaders  = []string{presence.Header}
	claimHeaders   = append([]string{pull.TasksHeader}, workerHeaders...)
	leaseHeaders   = append([]string{"X-Broker-Lease"}, workerHeaders...)
)

// The parameters of lists.
var (
	pageQueries     = []string{"limit", "size", "first"} // size is another name of limit
	channelQueries  = append([]string{"group"}, pageQueries...)
	deadQueries     = append([]string{"fingerprint", "reason", "from", "to", "order"}, pageQueries...)
	placeQueries    = append([]string{"place"}, pageQueries...)
	messageQueries  = append(append([]string{"status", "statusChangedSince"}, searchQueries...), placeQueries...)
	scheduleQueries = append([]string{"status"}, placeQueries...)
	answersQueries  = []string{"wait", "until", "first", "place"}
	booksQueries    = []string{"from", "to"}
	queuedQueries   = []string{"limit", "size", "after"}
	actionQueries   = []string{"fingerprint", "canary", "redrive"}
	claimQueries    = []string{"limit", "size", "wait", "timeout"}
)

// A headerSet is a set of the X-Broker- headers that some routes know and others do not.
type headerSet uint32

// A knownHeader is an X-Broker- header that a route knows. bit is 0 for a common one.
type knownHeader struct {
	folded []byte // its name, with lowBit in each byte
	bit    headerSet
}

// lowBit is what distinguishes small letters from capital ones, lowBits is eight of them.
const lowBit, lowBits = 0x20, 0x2020202020202020

// is reports whether name, of the length of h and with the prefix, is that of h in any case. It compares
// words of eight bytes, from the end to the prefix. Names are letters and hyphens: a byte that is
// neither and becomes one under lowBit is no part of a header name.
func (h *knownHeader) is(name []byte) bool {
	for end := len(h.folded); end > len(brokerPrefix); end -= 8 {
		if binary.LittleEndian.Uint64(name[end-8:end])|lowBits != binary.LittleEndian.Uint64(h.folded[end-8:end]) {
			return false
		}
	}
	return true
}

// longestHeader is the length of the longest known header.
const longestHeader = 32

// knownHeaders are the known headers by the length of their names, special those with a bit, in the
// order of their bits.
var knownHeaders, special = indexHeaders(table)

func indexHeaders(routes []Route) (byLength [longestHeader + 1][]knownHeader, special []string) {
	seen := map[string]bool{}
	add := func(name string, bit headerSet) {
		seen[name] = true
		h := knownHeader{[]byte(name), bit}
		for i := range h.folded {
			h.folded[i] |= lowBit
		}
		byLength[len(name)] = append(byLength[len(name)], h)
	}
	for _, name := range commonHeaders {
		add(name, 0)
	}
	for _, r := range routes {
		for _, name := range r.Headers {
			if strings.HasPrefix(name, brokerPrefix) && !seen[name] {
				add(name, 1<<len(special))
				special = append(special, name)
			}
		}
	}
	return byLength, special
}

// headerNamed returns the bit of a known X-Broker- header. It allocates nothing.
func headerNamed(name []byte) (bit headerSet, ok bool) {
	if len(name) > longestHeader {
		return 0, false
	}
	same := knownHeaders[len(name)]
	for i := range same {
		if same[i].is(name) {
			return same[i].bit, true
		}
	}
	return 0, false
}

// A seenHeaders is what inspect saw of the X-Broker- headers of a request, besides common ones. The
// request has it as a user value when it is not the zero value, which is the usual case.
type seenHeaders struct {
	special headerSet
	unknown string // the first one that no route knows, shortened; "": none
}

// see adds an X-Broker- header.
func (s *seenHeaders) see(name []byte) {
	bit, ok := headerNamed(name)
	if ok {
		s.special |= bit
	} else if s.unknown == "" {
		s.unknown = string(name[:min(len(name), 2*maxShownName)])
	}
}

// seenKey is the user value with a *seenHeaders.
const seenKey = "seen-headers"

// keep makes s a user value of the request, unless there is nothing to know of it.
func (s seenHeaders) keep(rc *fasthttp.RequestCtx) {
	if s.special != 0 || s.unknown != "" {
		rc.SetUserValue(seenKey, &s)
	}
}

// takes returns the special headers that a route knows.
func (r *Route) takes() (set headerSet) {
	for i, name := range special {
		for _, own := range r.Headers {
			if own == name {
				set |= 1 << i
			}
		}
	}
	return set
}

// guarded refuses a request with a header or a parameter that its route does not know.
func (a *API) guarded(r Route, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	taken := r.takes()
	return func(rc *fasthttp.RequestCtx) {
		err := r.checkHeaders(rc, taken)
		if err == nil {
			err = r.checkQuery(rc)
		}
		if err != nil {
			a.fail(rc, err)
			return
		}
		next(rc)
	}
}

// checkHeaders refuses an X-Broker- header besides the common ones and taken.
func (r *Route) checkHeaders(rc *fasthttp.RequestCtx, taken headerSet) error {
	seen, _ := rc.UserValue(seenKey).(*seenHeaders)
	if seen == nil {
		return nil
	}
	if seen.unknown != "" {
		return r.unknownHeader(seen.unknown)
	}
	for i, name := range special {
		if (seen.special&^taken)>>i&1 != 0 {
			return r.unknownHeader(name)
		}
	}
	return nil
}

// unknownHeader refuses a header. The nearest one is looked for without the prefix that all have.
func (r *Route) unknownHeader(name string) error {
	var short []string
	full := map[string]string{}
	for _, list := range [][]string{r.Headers, commonHeaders} {
		for _, known := range list {
			text := strings.TrimPrefix(known, brokerPrefix)
			short = append(short, text)
			full[text] = known
		}
	}
	meant := ""
	own := name[len(brokerPrefix):]
	if best := cmp.Or(problem.Nearest(own, short), problem.Inside(own, short)); best != "" {
		meant = " Did you mean " + full[best] + "?"
	}
	if len(r.Headers) > 0 {
		meant += " Its headers, besides those with tokens, are " + strings.Join(r.Headers, ", ") + "."
	}
	return problem.Newf(fasthttp.StatusBadRequest, "unknown_header",
		"The request has a header %+q, which this route does not take; nothing was done.%s", quoted(name), meant)
}

// checkQuery refuses a query parameter that the route does not take. Names are compared exactly: a
// parameter in the spelling of a member of the body would have no effect.
func (r *Route) checkQuery(rc *fasthttp.RequestCtx) error {
	if len(rc.URI().QueryString()) == 0 {
		return nil
	}
next:
	for key := range rc.QueryArgs().All() {
		name := string(key)
		for _, known := range r.Query {
			if name == known {
				continue next
			}
		}
		if name == "" { // between two ampersands
			continue
		}
		if len(r.Query) == 0 {
			return problem.Newf(fasthttp.StatusBadRequest, "unknown_parameter",
				"The query has a parameter %+q, and this route takes none; nothing was done.", quoted(name))
		}
		meant := ""
		if best := problem.Nearest(name, r.Query); best != "" {
			meant = " Did you mean " + best + "?"
		}
		return problem.Newf(fasthttp.StatusBadRequest, "unknown_parameter",
			"The query has a parameter %+q, which this route does not take; nothing was done.%s Its parameters are %s.",
			quoted(name), meant, strings.Join(r.Query, ", "))
	}
	return nil
}

// quoted is a name of a client as a refusal quotes it.
func quoted(name string) string {
	if len(name) > maxShownName {
		return name[:maxShownName] + "..."
	}
	return name
}
