package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeExamples writes three bodies whose spelling no JSON encoder would choose.
func writeExamples(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "index.json")
	text := `[{"name":"push","examples":[{ "a": "é\u00e9" }, {}]},{"name":"odd name","examples":[ [1.50] ]}]`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

var audited = []string{"run", "--payload-field", "examples", "--passes", "1", "--messages", "3", "--content-type",
	"application/json",
	"--connections", "2", "--push-consumers", "1", "--pull-workers", "2", "--audit", "--payload-from"}

func TestBodiesOfAFieldKeepTheSpellingOfTheFile(t *testing.T) {
	p, err := ReadPayloadField(writeExamples(t), "examples")
	require.NoError(t, err)
	require.Equal(t, 3, p.Bodies())
	require.Equal(t, `{ "a": "é\u00e9" }`, string(p.Append(nil, Identity{Seq: 0})))
	require.Equal(t, `[1.50]`, string(p.Append(nil, Identity{Seq: 2})))
	require.Equal(t, []string{"push.0", "push.1", "odd%20name.0"}, p.names)
	_, err = ReadPayloadField(writeExamples(t), "samples")
	require.Error(t, err)
}

func TestAPassSendsEachBodyOnce(t *testing.T) {
	c := Config{PayloadFrom: writeExamples(t), PayloadField: "examples", Passes: 2}
	require.NoError(t, c.resolvePasses())
	require.EqualValues(t, 6, c.Messages)
	c.Messages = 5
	require.ErrorContains(t, c.resolvePasses(), "3 bodies")
}

func TestAnAuditOfAFaithfulBrokerFindsNothing(t *testing.T) {
	for name, args := range map[string][]string{
		"single routes":    nil,
		"batch routes":     {"--batch", "2", "--pull-batch", "10"},
		"several channels": {"--channels", "2", "--push-consumers", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text, r := runBench(t, startFakeBroker(t), append(append(audited, writeExamples(t)), args...)...)
			require.Equal(t, ExitOK, code, text)
			a := r.Results[0].Audit
			require.Zero(t, a.Deviations, text)
			require.Equal(t, 3, a.Messages)
			require.EqualValues(t, 3*r.Config.consumersPerChannel(), a.Alike)
			require.Equal(t, a.Alike, a.Compared)
			require.Contains(t, text, "audit 1: 3 messages")
		})
	}
}

func TestAnAuditFindsEachDeviation(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*fakeBroker)
		word    string
	}{
		"body": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { j.body = []byte(`{"a":"éé"}`) } },
			"body push.0 of"},
		"name": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { j.headers[nameHeader] = "other" } }, nameHeader +
			` is "other"`},
		"no name": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { delete(j.headers, nameHeader) } },
			nameHeader + ` is ""`},
		"identity": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { delete(j.headers, identityHeader) } },
			"no identity of this run"},
		"content type": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { j.contentType = "text/plain" } },
			`Content-Type is "text/plain"`},
		"attempt": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { j.attempts = 1 } }, `attempt is "2"`},
		"message ID": {func(f *fakeBroker) { f.damage = func(j *fakeJob) { j.messageID = "stranger" } },
			`message ID is "stranger"`},
		"loss":      {func(f *fakeBroker) { f.loseEvery = 2 }, "deliveries that arrived: 4, not 6"},
		"copy":      {func(f *fakeBroker) { f.copyEvery = 2 }, "deliveries compared: 8, not 6"},
		"refusal":   {func(f *fakeBroker) { f.refuseButDeliverEvery = 2 }, "messages acknowledged: 2, not 3"},
		"repeat":    {func(f *fakeBroker) { f.unsureEvery = 2 }, "answers that are no success"},
		"forgotten": {func(f *fakeBroker) { f.forgetAt = 2 }, "the broker says: sequence 2 has status 404"},
	} {
		for route, args := range map[string][]string{"": nil, ", batch": {"--pull-batch", "10"}} {
			t.Run(name+route, func(t *testing.T) {
				f := startFakeBroker(t)
				f.damageAt = 1
				c.breakIt(f)
				args := append(append(audited, writeExamples(t), "--connections", "1", "--drain", "1s"), args...)
				code, text, r := runBench(t, f, args...)
				require.Equal(t, ExitPromise, code, text)
				require.Contains(t, text, c.word)
				require.Positive(t, r.Results[0].Audit.Deviations)
			})
		}
	}
}

func TestAnAuditReadsTheRecordOfTheBroker(t *testing.T) {
	good := func() *messageView {
		m := &messageView{Status: "DISPATCHED"}
		for _, id := range []string{"a", "b"} {
			m.Jobs = append(m.Jobs, struct {
				ConsumerID, Status string
				Attempts           int
			}{id, "DELIVERED", 1})
		}
		return m
	}
	for name, c := range map[string]struct {
		change func(*messageView)
		final  bool
	}{
		"not dispatched": {func(m *messageView) { m.Status = "ACCEPTED" }, false},
		"a job missing":  {func(m *messageView) { m.Jobs = m.Jobs[:1] }, true},
		"a job twice":    {func(m *messageView) { m.Jobs[1] = m.Jobs[0] }, true},
		"a second try":   {func(m *messageView) { m.Jobs[1].Attempts = 2 }, true},
		"in flight":      {func(m *messageView) { m.Jobs[1].Status = "INFLIGHT" }, false},
		"dead":           {func(m *messageView) { m.Jobs[1].Status = "DEAD" }, true},
	} {
		m := good()
		c.change(m)
		fault, final := m.fault(map[string]bool{"a": true, "b": true})
		require.NotEmpty(t, fault, name)
		require.Equal(t, c.final, final, name)
	}
	fault, final := good().fault(map[string]bool{"a": true, "b": true})
	require.Empty(t, fault)
	require.True(t, final)
}

func TestAnAuditNeedsABoundedNumberOfMessages(t *testing.T) {
	var out, progress bytes.Buffer
	require.Equal(t, ExitUsage, run(context.Background(), []string{"run", "--audit"}, &out, &progress))
	require.Contains(t, progress.String(), "--audit needs --messages")
}
