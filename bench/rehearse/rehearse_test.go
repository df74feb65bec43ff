package rehearse

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatCannotBeRehearsedIsRefusedBeforeAnythingHappens(t *testing.T) {
	good := []string{"--url", "http://broker:8080", "--scenario", "redis-down", "--i-own-this-broker", "--break", "a",
		"--mend", "b"}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	require.NoError(t, func() error { _, err := Parse(good, nil); return err }())
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{nil, "--url is needed: the broker of the installation that is to be broken"},
		{with("--url", "broker:8080"), "--url must be like http://broker.staging:8080"},
		{with("--scenario="), "--scenario is needed: redis-down, mysql-down, consumer-down, broker-killed"},
		{with("--scenario", "redis-dwn"), `unknown --scenario "redis-dwn"; did you mean redis-down?`},
		{with("--rate", "501"), "--rate must be up to 500 a second"},
		{with("--rate", "NaN"), "--rate must be up to 500 a second"},
		{with("--outage", "1ms"), "--calm, --outage and --wait must be at least 1s"},
		{with("--wait", "900h"), "--rate for all of --calm, --outage and --wait is more than 1000000 messages"},
		{with("--sink", "here"), "--sink must be an address, as 0.0.0.0:9000, or none"},
		{with("--scenario", consumerDown),
			"consumer-down takes the consumers of the rehearsal away, without --break and --mend"},
		{with("--policy", "x"),
			`invalid value "x" for flag -policy: it must be field=value; bench rehearse --help lists the flags`},
		{[]string{"--scenaro", "x"},
			`unknown flag "--scenaro"; did you mean --scenario?; bench rehearse --help lists the flags`},
		{with("x"), `unexpected argument "x"`},
		{with("--scenario", "mysql-down", "--mend="),
			"mysql-down needs --break and --mend: the commands that take MySQL away from this installation, and give it back"},
		{with("--i-own-this-broker=false"), "a rehearsal takes Redis away from http://broker:8080: say " +
			"--i-own-this-broker if it is yours, and no user of it is disturbed"},
	} {
		_, err := Parse(wrong.args, nil)
		require.EqualError(t, err, wrong.want)
	}
	var out bytes.Buffer
	_, err := Parse([]string{"--help"}, &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	require.Contains(t, out.String(), "--i-own-this-broker\n")
}

// rehearsed are books of five messages in the outage: one that came, a lost one, a dead letter, a refused
// one, and one without an answer.
func rehearsed() *books {
	b := newBooks("m-")
	b.enter(outage)
	for range 5 {
		b.begin()
	}
	b.tell(0, accepted, "")
	b.tell(1, accepted, "")
	b.tell(2, unknown, "")
	b.tell(2, accepted, "")
	b.tell(3, refused, "503 unavailable")
	b.tell(4, unknown, "")
	b.arrive(pull, "m-0")
	b.arrive(pull, "m-0")
	return b
}

func TestWhatWasAcceptedAndDidNotComeIsLost(t *testing.T) {
	b := rehearsed()
	x := b.consumer(pull, map[string]bool{"m-2": true}, map[string]bool{"m-1": true})
	require.Equal(t, 1, x.Waiting, "it is late, and not lost")
	require.Zero(t, x.Lost)
	x = b.consumer(pull, map[string]bool{"m-2": true}, nil)
	require.Positive(t, x.LongestSilence)
	x.LongestSilence = 0
	require.Equal(t, ConsumerResult{Consumer: "pull", Delivered: 1, Repeated: 1, DeadLetters: 1, Lost: 1}, x)
	during := b.phases()[outage]
	during.SlowestAccepted = 0
	require.Equal(t, PhaseResult{Phase: "outage", Posted: 5, Accepted: 3, Refused: 1, Unknown: 1}, during)

	v := &Verdict{Scenario: "redis-down", URL: "http://b", Balanced: true, Well: true, WellAfter: 1.5, Broken: 30}
	require.True(t, v.OK())
	require.Equal(t, "nothing was lost, and all was well 1.5s after the end of 30s without.", v.sentence())
	v.Lost, v.Well = 1, false
	require.False(t, v.OK())
	require.Equal(t, "1 deliveries of accepted messages ARE LOST, and all was NOT well again in time.", v.sentence())
	require.False(t, (&Verdict{}).OK(), "books that do not balance")
	require.False(t, (&Verdict{Balanced: true, Foreign: 1}).OK())
}

func TestWhatNobodyPostedIsForeign(t *testing.T) {
	b := rehearsed()
	for _, id := range []string{"m-5", "m--1", "m-", "x-0", ""} {
		b.arrive(pull, id)
	}
	require.Equal(t, 5, b.foreign)
}

// The ID of a delivery is its payload, whatever headers the policy leaves.
func TestAPushIsKnownByItsPayload(t *testing.T) {
	b := newBooks("m-")
	b.begin()
	s := &sink{books: b}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("m-0")))
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Zero(t, b.foreign)
	require.NotZero(t, b.records[0].arrived[push])
	s.down.Store(true)
	require.Panics(t, func() { s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("m-0"))) })
	require.Zero(t, b.repeated[push])
}

func TestAllIsWellWhenNothingIsRefusedOrLate(t *testing.T) {
	b := newBooks("m-")
	b.late = time.Hour
	b.enter(after)
	b.begin()
	b.tell(0, accepted, "")
	s := b.state([]int{pull})
	require.Equal(t, 1, s.open)
	require.Zero(t, s.trouble, "it has time")
	b.arrive(pull, "m-0")
	require.Zero(t, b.state([]int{pull}).open)
	require.Equal(t, 1, b.state([]int{push, pull}).open)

	b.late = 0
	require.Positive(t, b.state([]int{push, pull}).trouble, "a delivery that is missing for too long")
	require.Zero(t, b.state([]int{pull}).trouble)
	n := b.begin()
	b.tell(n, refused, "503 unavailable")
	require.Equal(t, b.records[n].posted, b.state([]int{pull}).trouble)
}

func TestTheVerdictSaysWhatFollows(t *testing.T) {
	v := &Verdict{Scenario: "mysql-down", URL: "http://b", Balanced: true, Well: true, Broken: 30, Unknown: 2,
		Refused:   map[string]int{"503 unavailable": 7, "no connection": 1},
		Phases:    []PhaseResult{{Phase: "calm", Posted: 3, Accepted: 3, SlowestAccepted: .004}},
		Consumers: []ConsumerResult{{Consumer: "push", Delivered: 3, LongestSilence: 31, WellAfter: 2}}}
	var out strings.Builder
	v.Print(&out)
	require.Contains(t, out.String(), "mysql-down at http://b: nothing was lost")
	require.Contains(t, out.String(), "Refused: 7 with 503 unavailable, 1 with no connection. A producer")
	require.Contains(t, out.String(), "2 posts never had an answer")
	require.Regexp(t, `(?m)^push +3 +0 +0 +0 +0 +31s +\+2s$`, out.String())
	v.Refused, v.Unknown, v.Consumers[0].LongestSilence = nil, 0, 1
	out.Reset()
	v.Print(&out)
	require.Contains(t, out.String(), "The outage did not show")
}
