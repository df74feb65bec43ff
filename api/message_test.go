package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestMessageShowsEverythingAboutItself(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	push, pull := w.consumer("push", "push"), w.consumer("pull", "pull")
	m := w.insert(durable.Message{
		Key: "order-1", Priority: 7, ContentType: "application/json; charset=utf-8",
		Headers: []byte("traceparent:00-a-b-01\nx-tenant:T:1\n"), Payload: []byte(`{"hello":"<wörld>"}`),
	})
	w.enqueue(push, m)
	w.kill(pull, m)

	r := w.get("/channel/c/message/order-1").is(200)
	v := r.json()
	at := m.ID.Time().Format(millis)
	jobList := v["Jobs"].([]any)
	delete(v, "Jobs")
	require.Equal(t, map[string]any{
		"ID": "order-1", "Payload": `{"hello":"<wörld>"}`, "ContentType": "application/json; charset=utf-8", "Priority": 7.0,
		"ProducedBy": "The Producer", "ReceivedAt": at, "DispatchedAt": at, "Status": "DISPATCHED", "Pages": map[string]any{},
		"Headers": map[string]any{"traceparent": "00-a-b-01", "x-tenant": "T:1"},
	}, v)
	require.Len(t, jobList, 2)
	jobID := m.ID.Job(0).String()
	require.Equal(t, map[string]any{
		"ID": jobID, "ListenerEndpoint": "http://127.0.0.1:1/push", "ListenerName": "N push", "Status": "QUEUED",
		"StatusChangedAt": at,
		"Attempts":        0.0, "LeasesLost": 0.0, "GivenBack": 0.0,
		"ConsumerID": "push", "ConsumerURL": "/channel/c/consumer/push",
		"JobURL":       "/channel/c/consumer/push/job/" + jobID,
		"RetriggerURL": "/channel/c/message/order-1/job/" + jobID + "/re-trigger", "JobRequeueURL": "",
	}, jobList[0])
	dead := jobList[1].(map[string]any)
	require.Equal(t, "DEAD", dead["Status"])
	require.Equal(t, 6.0, dead["Attempts"])
	require.Equal(t, 500.0, dead["StatusCode"])
	require.Equal(t, dead["JobURL"].(string)+"/requeue-dead-job", dead["JobRequeueURL"])

	require.Equal(t, r.Body, w.get("/channel/c/message/"+m.ID.String()).is(200).Body, "the broker's own ID finds it too")
	for _, link := range []string{"ConsumerURL", "JobURL"} {
		w.get(dead[link].(string)).is(200)
	}
	require.Equal(t, dead["ID"], w.get(dead["JobURL"].(string)).json()["ID"])
}

func TestPayloadsOfAnyBytesAreShown(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for _, payload := range []string{"", "plain", "\x00\x01", "\xff\xfe\x00binary", "ends in half a rune \xc3",
		strings.Repeat("\x80", 1<<20), "\u2028</script>\u2029"} {
		m := w.insert(durable.Message{ContentType: "application/octet-stream", Payload: []byte(payload)})
		v := w.get("/channel/c/message/" + m.ID.String()).is(200).json()
		if v["PayloadEncoding"] == nil {
			require.Equal(t, payload, v["Payload"])
			continue
		}
		require.Equal(t, "base64", v["PayloadEncoding"])
		back, err := base64.StdEncoding.DecodeString(v["Payload"].(string))
		require.NoError(t, err)
		require.Equal(t, payload, string(back))
	}
}

func TestAMessageIsAcknowledgedUntilAJobIsKnownOrTheFailSafeActs(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.RationalDelay = time.Hour })
	w.channel()
	status := func(m durable.Message) any {
		return w.get("/channel/c/message/" + m.ID.String()).is(200).json()["Status"]
	}
	require.Equal(t, "DISPATCHED", status(w.insert(durable.Message{})), "nobody to send it to")
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{})
	require.Equal(t, "ACKNOWLEDGED", status(m))
	w.enqueue(k, m)
	require.Equal(t, "DISPATCHED", status(m))
	w.api.o.RationalDelay = 0
	require.Equal(t, "DISPATCHED", status(w.insert(durable.Message{})))
}

func TestAMessageIsShownWhileTheQueueIsDown(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{})
	w.kill(k, m)
	w.mini.Close()
	v := w.get("/channel/c/message/" + m.ID.String()).is(200).json()
	require.Equal(t, "DEAD", v["Jobs"].([]any)[0].(map[string]any)["Status"])
}

func TestJobsOfAWideMessageArePaged(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	for i := range 7 {
		w.consumer(fmt.Sprintf("k%d", i), "pull")
	}
	m := w.insert(durable.Message{Key: "wide"})
	w.consumer("late", "pull")
	var names []string
	path := "/channel/c/message/wide?size=3"
	for path != "" {
		v := w.get(path).is(200).json()
		require.LessOrEqual(t, len(v["Jobs"].([]any)), 3)
		for _, j := range v["Jobs"].([]any) {
			names = append(names, j.(map[string]any)["ConsumerID"].(string))
		}
		path, _ = v["Pages"].(map[string]any)["next"].(string)
	}
	require.Equal(t, []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"}, names, "a consumer created later has no job")
	for _, first := range []string{"nonsense", m.ID.String(), m.ID.Job(7).String(),
		w.insert(durable.Message{}).ID.Job(0).String()} {
		w.get("/channel/c/message/wide?first="+first).problem(400, "unknown_first")
	}
}

func TestMessagesBelongToTheirChannel(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.put("/channel/d", "").is(201)
	m := w.insert(durable.Message{Key: "key"})
	w.get("/channel/d/message/key").problem(404, "message_not_found")
	w.get("/channel/d/message/"+m.ID.String()).problem(404, "message_not_found")
	w.get("/channel/c/message/"+m.ID.Job(0).String()).problem(404, "message_not_found")
	w.get("/channel/c/message/"+m.ID.Next().String()).problem(404, "message_not_found")
	w.get("/channel/c/message/KEY").problem(404, "message_not_found")
	w.get("/channel/c/message/"+strings.ToUpper(m.ID.String())).problem(404, "message_not_found")
}

func TestMessagesAreListedByTimeUnderTheIDTheyAreKnownBy(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	var want []string
	var all []durable.Message
	for i := range 30 {
		m := durable.Message{Payload: []byte("x")}
		if i%3 == 0 {
			m.Key = fmt.Sprintf("key-%d", 100-i)
		}
		m = w.insert(m)
		all = append(all, m)
		want = append(want, "/channel/c/message/"+m.PublicID())
		if i == 14 {
			time.Sleep(5 * time.Millisecond) // so that the second half is later
		}
	}
	require.Equal(t, want, w.walk("/channel/c/messages"))
	require.Equal(t, want, w.walk("/channel/c/messages?size=7"))
	require.Equal(t, want[9:], w.walk("/channel/c/messages?first="+all[9].Key))
	require.Equal(t, want[10:], w.walk("/channel/c/messages?first="+all[10].ID.String()))
	require.Equal(t, want[9:], w.walk("/channel/c/messages?first="+all[9].ID.String()))
	w.get("/channel/c/messages?first=unknown").problem(400, "unknown_first")

	since := all[15].ID.Time().Format(time.RFC3339Nano)
	require.Equal(t, want[15:], w.walk("/channel/c/messages?size=4&statusChangedSince="+since))
	local := all[15].ID.Time().In(time.FixedZone("", 5*3600+1800)).Format(time.RFC3339Nano)
	require.Equal(t, want[15:], w.walk("/channel/c/messages?statusChangedSince="+local),
		"a plus sign that was not encoded")
	require.Equal(t, want[15:], w.walk("/channel/c/messages?statusChangedSince="+url.QueryEscape(local)))
	require.Equal(t, want[20:], w.walk("/channel/c/messages?first="+all[20].ID.String()+"&statusChangedSince="+since))
	require.Empty(t, w.walk("/channel/c/messages?statusChangedSince=2999-01-01T00:00:00Z"))
	require.Equal(t, want, w.walk("/channel/c/messages?statusChangedSince=1970-01-01T00:00:00Z"))

	r := w.get("/channel/c/messages?size=100").is(200)
	require.Equal(t, all[29].ID.Time().Truncate(time.Second), r.lastModified(), "the newest member")
	w.get("/channel/c/messages?size=100", "If-None-Match: "+r.Header("ETag")).is(304)
}

func TestADateProvesAMessageUnchangedOnceItsJobsAreOver(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	k := w.consumer("k", "push")
	m := w.insert(durable.Message{})
	path := "/channel/c/message/" + m.ID.String()
	w.enqueue(k, m)
	later := "If-Modified-Since: " + time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	w.get(path, later).is(200)
	done := time.Now().Add(time.Minute)
	w.record(durable.Outcome{Kind: durable.OutcomeDelivered, ConsumerNo: k.No, ID: m.ID, Attempts: 1,
		AtMs: done.UnixMilli(), StatusCode: 204})
	r := w.get(path).is(200)
	require.Equal(t, done.UTC().Truncate(time.Second), r.lastModified(), "the last change of a job")
	w.get(path, "If-Modified-Since: "+r.Header("Last-Modified")).is(304)
	w.get(path, "If-Modified-Since: "+done.Add(-2*time.Second).UTC().Format(http.TimeFormat)).is(200)
}

// Producers could once give messages IDs of the form of internal ones. Such a message is found under its
// ID unless that is the ID of another message, and under its own place in any case.
func TestATextOfTheFormOfAnInternalIDNamesThatMessageFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	owned := w.insert(durable.Message{Payload: []byte("the owner's")})
	free := w.ids.Next().String()
	squat := w.insert(durable.Message{Key: owned.ID.String(), Payload: []byte("squatted")})
	old := w.insert(durable.Message{Key: free, Payload: []byte("old")})
	for name, payload := range map[string]string{
		owned.ID.String(): "the owner's", squat.ID.String(): "squatted", free: "old", old.ID.String(): "old",
	} {
		require.Equal(t, payload, w.get("/channel/c/message/" + name).json()["Payload"], name)
		require.Equal(t, 200, w.get("/channel/c/message/"+name+"/timeline").Status)
	}
	var want []string
	for _, m := range []durable.Message{owned, squat, old} {
		want = append(want, "/channel/c/message/"+m.ID.String())
	}
	require.Equal(t, want, w.walk("/channel/c/messages?size=1"), "each link leads to its message")
	require.Equal(t, want, w.walk("/channel/c/messages?first="+owned.ID.String()))
	require.Equal(t, want[2:], w.walk("/channel/c/messages?first="+free))
	w.get("/channel/c/message/"+w.ids.Next().String()).problem(404, "message_not_found")

	plan := w.plan(durable.Scheduled{Message: durable.Message{Payload: []byte("the owner's")}})
	taker := w.plan(durable.Scheduled{Message: durable.Message{Key: plan.ID.String(), Payload: []byte("squatted")}})
	later := w.plan(durable.Scheduled{Message: durable.Message{Key: w.ids.Next().String(), Payload: []byte("old")}})
	for name, payload := range map[string]string{
		plan.ID.String(): "the owner's", taker.ID.String(): "squatted", later.Key: "old", later.ID.String(): "old",
	} {
		require.Equal(t, payload, w.get("/channel/c/scheduled-message/" + name).json()["payload"], name)
	}
}
