package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Headers reach consumers as their producer wrote them, and look alike in every view.
func TestHeadersStayAsTheyWereWritten(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		p := w.start("BROKER_RETRY_BACKOFF=200ms", "BROKER_RETRY_JITTER=0")
		t.Run("names, empty values and Latin-1", func(t *testing.T) { parallel(t); headersAsWritten(t, p) })
		t.Run("any scheme of credentials", func(t *testing.T) { parallel(t); anyScheme(t, p) })
		t.Run("a date of PHP", func(t *testing.T) { parallel(t); dateOfPHP(t, p) })
	})
}

// rawRequest accepts one connection, answers 204, and sends the text of the request.
func rawRequest(t *testing.T) (url string, got chan string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	got = make(chan string, 10)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			var text strings.Builder
			buf := make([]byte, 4096)
			for !strings.Contains(text.String(), "\r\n\r\nthe body") {
				n, err := c.Read(buf)
				text.Write(buf[:n])
				if err != nil {
					break
				}
			}
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
			_ = c.Close()
			got <- text.String()
		}
	}()
	return "http://" + listener.Addr().String(), got
}

func headersAsWritten(t *testing.T, p *process) {
	url, got := rawRequest(t)
	s := p.stage(t, "push="+url, "all", "filtered")
	s.put(s.path("/consumer/push"), "headers", "SOAPVersion: 1.2\nx-own: policy")
	s.put(s.path("/consumer/filtered"), "filter", "headers['x-name'] == 'Z\u00fcrich' && headers['x-flag'] == '' && "+
		"contentType == 'text/\u00fc'")
	headers := []string{"X-Broker-Metadata-Headers", "SOAPAction, X-Flag, x-name, X-Absent, X-OWN", "SOAPAction", "urn:x",
		"X-Flag", "", "X-Name", "Z\xfcrich", "X-Own", "producer"}
	at := s.publish("the body", append(headers, "Content-Type", "text/\xfc")...)
	text := <-got
	for _, line := range []string{"SOAPAction: urn:x", "X-Flag: ", "x-name: Z\xfcrich", "SOAPVersion: 1.2"} {
		require.Contains(t, text, "\r\n"+line+"\r\n")
	}
	require.Contains(t, text, "\r\nX-Broker-Metadata-Headers: SOAPAction,X-Flag,X-OWN,x-name\r\n")
	require.NotContains(t, text, "Absent")
	require.Equal(t, 1, strings.Count(strings.ToLower(text), "\r\nx-own:"), "the policy replaces metadata of the name")
	require.Contains(t, text, ": policy\r\n")
	pulled := s.awaitQueued("filtered", 1)[0].Message
	shown := s.message(at)
	for _, view := range []map[string]string{pulled.Headers, shown.Headers} {
		require.Equal(t, "Z\u00fcrich", view["x-name"])
		require.Equal(t, "urn:x", view["SOAPAction"])
		flag, has := view["X-Flag"]
		require.True(t, has)
		require.Empty(t, flag)
	}
	require.Equal(t, "text/\u00fc", pulled.ContentType)
	require.Equal(t, "text/\u00fc", shown.ContentType)

	require.Equal(t, 201, s.lines(`{"Payload":"the body","Headers":{"SOAPaction":"urn:y","X-Empty":""}}`)[0].Status)
	text = <-got
	require.Contains(t, text, "\r\nSOAPaction: urn:y\r\n")
	require.Contains(t, text, "\r\nX-Empty: \r\n")
}

func anyScheme(t *testing.T, p *process) {
	to := newSink(t, nil)
	s := p.stage(t, "push="+to.URL)
	for i, scheme := range [][2]string{{"Splunk abc", "Splunk abc"}, {"token x", "token x"}, {"BASIC u:p", "Basic dTpw"},
		{"Bearer tt0", "Bearer tt0"}} {
		s.put(s.path("/consumer/push"), "authorization", scheme[0])
		s.publish("x")
		eventually(t, "the delivery", func() bool { return to.count() == i+1 })
		require.Equal(t, scheme[1], to.all()[i].header.Get("Authorization"))
	}
}

func dateOfPHP(t *testing.T, p *process) {
	at := time.Now().UTC().Add(4 * time.Second).Truncate(time.Second)
	times := make(chan time.Time, 10)
	server := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		times <- time.Now()
		if time.Now().Before(at) {
			w.Header().Set("Retry-After", at.Format("Mon, 02 Jan 2006 15:04:05 +0000"))
			w.WriteHeader(503)
		}
	})
	p.stage(t, "push="+server).publish("x")
	require.True(t, (<-times).Before(at))
	require.False(t, (<-times).Before(at.Add(-100*time.Millisecond)), "the next attempt is not before the date")
}
