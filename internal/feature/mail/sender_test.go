package mail

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// A box is a mail server that answers as its test wants, and keeps what it took.
type box struct {
	mail, rcpt, data error
	hang             chan struct{} // nil: it does not
	refuse           string        // what no mail may have in its text; "": all may

	mu  sync.Mutex
	got []*mail.Message
	to  []string
}

func (b *box) NewSession(*smtp.Conn) (smtp.Session, error) { return b, nil }
func (b *box) Mail(string, *smtp.MailOptions) error        { return b.mail }
func (b *box) Rcpt(to string, _ *smtp.RcptOptions) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = append(b.to, to)
	return b.rcpt
}
func (b *box) Reset()        {}
func (b *box) Logout() error { return nil }

func (b *box) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil || b.data != nil {
		return cmp.Or(b.data, err)
	}
	if b.hang != nil {
		<-b.hang
	}
	if b.refuse != "" && strings.Contains(string(text), b.refuse) {
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "not that"}
	}
	msg, err := mail.ReadMessage(strings.NewReader(string(text)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, msg)
	return err
}

// serve starts the server and returns the options of a sender to it.
func (b *box) serve(t *testing.T) Options {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, done := smtp.NewServer(b), make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return optionsOf(t, l.Addr().String())
}

func optionsOf(t *testing.T, addr string) Options {
	server, wrong := NewServer("smtp://"+addr+"?tls=none", "Penstock <a@example.com>", nil)
	require.Empty(t, wrong)
	return Options{Server: server, Catalogue: catalogue.New(nil, slog.New(slog.DiscardHandler))}
}

// send makes an attempt of a message with that payload, through the table of senders.
func send(t *testing.T, ctx context.Context, o Options, url string, fields map[string]string, m *durable.Message,
	within time.Duration) egress.Result {
	t.Helper()
	table := push.NewSenders(New(o).Row())
	require.NoError(t, table.Check(url))
	target, err := table.Target(egress.ToConsumers, url, "")
	require.NoError(t, err)
	book := policy.NewBook(policy.Policy{})
	record, err := book.Merge("", fields, time.Now())
	require.NoError(t, err)
	return target.Send(ctx, push.Attempt{Message: m, Consumer: &durable.Consumer{No: 7, ID: "k"}, Policy: book.Of(record),
		No: 2}, time.Now().Add(within))
}

func message(payload string) *durable.Message {
	return &durable.Message{ID: ident.Before(1_700_000_000_000), Key: "m-1", ContentType: "application/json",
		Payload: []byte(payload)}
}

func TestAJobIsOneMailToAllAddresses(t *testing.T) {
	b := &box{}
	o := b.serve(t)
	fields := map[string]string{"subject": "Order {{payload.order.id}} of {{ payload.who }}",
		"body": "{{payload.lines.1.text}} {{payload.lines}} {{payload.none}}{{payload.nil}}|{{messageID}} {{attempt}} " +
			"{{consumer}}"}
	m := message(`{"order":{"id":17},"who":"Zoë\r\nBcc: evil@example.com","lines":[1,{"text":"two"}],"nil":null}`)
	for range 2 {
		res := send(t, t.Context(), o, "mailto:b@example.com,c%2Bd@example.com", fields, m, time.Minute)
		require.NoError(t, res.Err)
		require.Equal(t, 250, res.Status)
		require.Equal(t, egress.ByStatus, res.Reply)
	}
	require.Equal(t, []string{"b@example.com", "c+d@example.com"}, b.to[:2])
	got := b.got[0]
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, "Order 17 of Zoë Bcc: evil@example.com", subject)
	require.Empty(t, got.Header.Get("Bcc"))
	require.Equal(t, "m-1", got.Header.Get("X-Broker-Message-ID"))
	require.Equal(t, "<"+m.ID.Job(0).String()+"@example.com>", got.Header.Get("Message-ID"))
	require.Equal(t, got.Header.Get("Message-ID"), b.got[1].Header.Get("Message-ID"), "a repetition can be recognised")
	require.Equal(t, `two [1,{"text":"two"}] |m-1 2 k`, bodyOf(t, got))
}

// sendAll makes attempts of messages with these payloads at once, each through a target of its own, as a lane may have
// after a change of its consumer, and returns their results.
func sendAll(t *testing.T, o Options, fields map[string]string, payloads ...string) []egress.Result {
	t.Helper()
	table := push.NewSenders(New(o).Row())
	book := policy.NewBook(policy.Policy{Timeout: time.Hour})
	record, err := book.Merge("", fields, time.Now())
	require.NoError(t, err)
	results := make([]egress.Result, len(payloads))
	var wg sync.WaitGroup
	for i, payload := range payloads {
		m := message(payload)
		m.ID = ident.Before(1_700_000_000_000 + int64(i))
		target, err := table.Target(egress.ToConsumers, "mailto:b@example.com", "")
		require.NoError(t, err)
		wg.Go(func() {
			results[i] = target.Send(t.Context(), push.Attempt{Message: m, Consumer: &durable.Consumer{No: 7, ID: "k"},
				Policy: book.Of(record), No: 1}, time.Now().Add(time.Hour))
		})
	}
	wg.Wait()
	return results
}

func TestJobsThatComeTogetherShareAMail(t *testing.T) {
	b := &box{}
	o := b.serve(t)
	fields := map[string]string{"collect": "3/15m", "subject": "News", "body": "<{{payload}}>"}
	for _, res := range sendAll(t, o, fields, `"a"`, `"b"`, `"c"`, `"d"`, `"e"`, `"f"`) {
		require.NoError(t, res.Err)
		require.Equal(t, 250, res.Status)
	}
	require.Len(t, b.got, 2, "a full mail does not wait")
	seen := ""
	for _, got := range b.got {
		require.Equal(t, "News (and 2 more)", got.Header.Get("Subject"))
		require.Equal(t, "3", got.Header.Get("X-Broker-Jobs"))
		require.Empty(t, got.Header.Get("X-Broker-Message-ID"))
		text := bodyOf(t, got)
		require.Equal(t, 2, strings.Count(text, "----"))
		seen += text
	}
	require.NotEqual(t, b.got[0].Header.Get("Message-ID"), b.got[1].Header.Get("Message-ID"))
	for _, letter := range "abcdef" {
		require.Contains(t, seen, fmt.Sprintf("<\"%c\">", letter))
	}

	fields["collect"] = "3/100ms" // one alone goes when its time is over, as a mail of its own
	require.Equal(t, 250, sendAll(t, o, fields, `"g"`)[0].Status)
	require.Equal(t, "News", b.got[2].Header.Get("Subject"))
	require.Equal(t, "m-1", b.got[2].Header.Get("X-Broker-Message-ID"))
}

// A job whose text the server refuses makes no dead letters of those that share its mail.
func TestAMailThatIsRefusedIsSentJobByJob(t *testing.T) {
	b := &box{refuse: "poison"}
	o := b.serve(t)
	fields := map[string]string{"collect": "3/15m"}
	results := sendAll(t, o, fields, `"a"`, `"poison"`, `"c"`)
	require.Equal(t, egress.Refused, results[1].Reply)
	for _, res := range []egress.Result{results[0], results[2]} {
		require.Equal(t, egress.ByStatus, res.Reply)
		require.Equal(t, 250, res.Status)
	}
	require.Len(t, b.got, 2)
}

func TestATextOfSeveralJobsIsBounded(t *testing.T) {
	b := &box{}
	o := b.serve(t)
	big := `"` + strings.Repeat("x", 200<<10) + `"`
	sendAll(t, o, map[string]string{"collect": "4/15m"}, big, big, big, big)
	text := bodyOf(t, b.got[0])
	require.Less(t, len(text), longestText+1000)
	require.Equal(t, 3, strings.Count(text, "cut off"))
}

func TestAStopSendsNoCollection(t *testing.T) {
	b := &box{}
	target, err := push.NewSenders(New(b.serve(t)).Row()).Target(egress.ToConsumers, "mailto:b@example.com", "")
	require.NoError(t, err)
	life, stop := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, stop)
	res := target.Send(life, push.Attempt{Message: message(`"a"`), Consumer: &durable.Consumer{No: 7},
		Policy: &policy.Policy{Collect: policy.Rate{N: 5, Per: 10 * time.Minute}}}, time.Now().Add(time.Hour))
	require.ErrorIs(t, res.Err, egress.ErrClosed)
	require.False(t, res.Sent)
	require.Empty(t, b.got)
}

func TestAStopSendsWhatIsCollected(t *testing.T) {
	b := &box{}
	s := New(b.serve(t))
	target, err := push.NewSenders(s.Row()).Target(egress.ToConsumers, "mailto:b@example.com", "")
	require.NoError(t, err)
	time.AfterFunc(100*time.Millisecond, func() { s.Hurry(); s.Hurry() })
	for range 2 {
		res := target.Send(t.Context(), push.Attempt{Message: message(`"a"`), Consumer: &durable.Consumer{No: 7},
			Policy: &policy.Policy{Collect: policy.Rate{N: 5, Per: 10 * time.Minute}}}, time.Now().Add(time.Hour))
		require.Equal(t, 250, res.Status)
	}
}

func TestAMailIsCollectedForAQuarterOfTheTimeout(t *testing.T) {
	table := push.NewSenders(New(Options{}).Row())
	p := &policy.Policy{Timeout: 30 * time.Second, Collect: policy.Rate{N: 20, Per: 7500 * time.Millisecond}}
	require.NoError(t, table.Fits("mailto:a@example.com", p))
	p.Collect.Per = 8 * time.Second
	require.ErrorContains(t, table.Fits("mailto:a@example.com", p), "set timeout to 32s or more")
}

func TestTheTextOfAMailIsBounded(t *testing.T) {
	b := &box{}
	o := b.serve(t)
	m := message(`"` + strings.Repeat("x", 300<<10) + `"`)
	fields := map[string]string{"subject": "{{payload}}{{payload}}", "body": strings.Repeat("{{payload}}", 64)}
	require.Equal(t, 250, send(t, t.Context(), o, "mailto:b@example.com", fields, m, time.Minute).Status)
	body := bodyOf(t, b.got[0])
	require.Less(t, len(body), longestText+100)
	require.Contains(t, body, fmt.Sprintf("the payload has %d bytes", len(m.Payload)))
	require.LessOrEqual(t, len(b.got[0].Header.Get("Subject")), longestSubject+10)

	m = message("\xff\x00")
	require.Equal(t, 250, send(t, t.Context(), o, "mailto:b@example.com", nil, m, time.Minute).Status)
	require.Equal(t, "(2 bytes of application/json that are no text)", bodyOf(t, b.got[1]))
}

func TestWhatTheMailServerSaysDecides(t *testing.T) {
	said := func(code int, text string) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: text}
	}
	for name, tc := range map[string]*struct {
		box   box
		reply egress.Reply
		code  int
	}{
		"later, at MAIL":        {box{mail: said(421, "come again")}, egress.Deferred, 421},
		"later, at RCPT":        {box{rcpt: said(450, "come again")}, egress.Deferred, 450},
		"later, as HTTP's 410":  {box{rcpt: said(410, "come again")}, egress.Deferred, 410},
		"later, after the text": {box{data: said(452, "come again")}, egress.Deferred, 452},
		"never, at RCPT":        {box{rcpt: said(550, "come again")}, egress.Refused, 550},
		"never, after the text": {box{data: said(554, "come again")}, egress.Refused, 554},
		"credentials":           {box{mail: said(530, "come again")}, egress.Deferred, 530},
	} {
		t.Run(name, func(t *testing.T) {
			o := tc.box.serve(t)
			res := send(t, t.Context(), o, "mailto:b@example.com", nil, message(`{}`), time.Minute)
			require.NoError(t, res.Err)
			require.Equal(t, tc.reply, res.Reply)
			require.Equal(t, tc.code, res.Status)
			require.Contains(t, res.Words, fmt.Sprintf("%d %d.1.1 come again", tc.code, tc.code/100))
			require.NotContains(t, res.Words, "b@example.com", "callbacks may be secret")
			require.False(t, res.Local)
			verdict := (&policy.Policy{MaxRetries: 3}).Judge(policy.Answer{Status: res.Status, Complete: true,
				Deferred: res.Reply == egress.Deferred, Refused: res.Reply == egress.Refused}, 1)
			want := map[egress.Reply]policy.Meaning{egress.Deferred: policy.Retry, egress.Refused: policy.Rejected}
			require.Equal(t, want[tc.reply], verdict.Meaning)
		})
	}
}

func TestAMailWithoutAnAnswerIsTriedAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	res := send(t, t.Context(), optionsOf(t, l.Addr().String()), "mailto:b@example.com", nil, message(`{}`), time.Minute)
	require.EqualError(t, res.Err, "the mail server refused the connection")
	require.False(t, res.Sent)

	b := &box{hang: make(chan struct{})}
	t.Cleanup(func() { close(b.hang) })
	o := b.serve(t)
	res = send(t, t.Context(), o, "mailto:b@example.com", nil, message(`{}`), 300*time.Millisecond)
	require.ErrorContains(t, res.Err, "timeout")
	require.True(t, res.Sent, "the server may have the mail")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	res = send(t, ctx, o, "mailto:b@example.com", nil, message(`{}`), time.Minute)
	require.ErrorIs(t, res.Err, egress.ErrClosed, "the broker stops")
}

func TestMailsThatHangLeavePlacesToOtherConsumers(t *testing.T) {
	b := &box{hang: make(chan struct{})}
	o := b.serve(t)
	s := New(o)
	target, err := s.Row().Target(egress.ToConsumers, "mailto:b@example.com", "")
	require.NoError(t, err)
	try := func(no uint32, within time.Duration) egress.Result {
		return target.Send(t.Context(), push.Attempt{Message: message(`{}`), Consumer: &durable.Consumer{No: no},
			Policy: policy.NewBook(policy.Policy{}).Of("")}, time.Now().Add(within))
	}
	var all sync.WaitGroup
	for range mostAtOnce {
		all.Go(func() { try(1, time.Minute) })
	}
	require.Eventually(t, func() bool { return s.places.Taken() >= mostAtOnce/2 }, time.Minute, time.Millisecond)
	res := try(1, 100*time.Millisecond)
	require.True(t, res.Local, "nothing was sent, and no attempt counts")
	res = try(2, 3*time.Second) // it hangs, too
	require.False(t, res.Local, "another consumer has a place")
	close(b.hang)
	all.Wait()
	require.Zero(t, s.places.Taken())
}

func TestTheCallbacksOfMails(t *testing.T) {
	row := New(Options{Server: &Server{}, Domains: []string{"example.com"}}).Row()
	for _, good := range []string{"mailto:a@example.com", "MAILTO:a@EXAMPLE.com", "mailto:a@sub.example.com,b@example.com",
		"mailto:a%2Bb@example.com"} {
		require.NoError(t, row.Check(good), good)
	}
	for _, bad := range []string{"mailto:", "mailto:a", "mailto:a@", "mailto:@example.com", "mailto://a@example.com",
		"mailto:a@example.com?subject=x", "mailto:a@example.com?bcc=b@example.com", "mailto:a@example.com#x",
		"mailto:a@example.com%0d%0aBcc:b@example.com", "mailto:a@example.com%0aRCPT", "mailto:a%00@example.com",
		"mailto:A%20%3Ca@example.com%3E", "mailto:%22a%20b%22@example.com", "mailto:a@[127.0.0.1]", "mailto:a@example.com,",
		"mailto:%C3%A4@example.com", "mailto:a@%zz", "mailto:" + strings.Repeat("a", 260) + "@example.com",
		"mailto:" + strings.TrimSuffix(strings.Repeat("a@example.com,", MostReceivers+1), ",")} {
		require.Error(t, row.Check(bad), bad)
		require.Equal(t, "invalid_callback", codeOf(t, row.Check(bad)), bad)
	}
	for _, other := range []string{"mailto:a@example.org", "mailto:a@notexample.com",
		"mailto:a@example.com,b@example.org"} {
		require.Equal(t, "callback_refused", codeOf(t, row.Check(other)), other)
	}
	err := New(Options{Missing: "BROKER_ALERT_SMTP_URL"}).Row().Check("mailto:a@example.com")
	require.Equal(t, "callback_refused", codeOf(t, err))
	require.ErrorContains(t, err, "BROKER_ALERT_SMTP_URL")
}

func codeOf(t *testing.T, err error) string {
	t.Helper()
	var p *problem.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, 400, p.Status)
	return p.Code
}

// bodyOf is the text of a mail without the end of its last line.
func bodyOf(t *testing.T, m *mail.Message) string {
	t.Helper()
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	require.NoError(t, err)
	return strings.TrimSpace(string(body))
}

func FuzzReceivers(f *testing.F) {
	f.Add("mailto:a@example.com,b%2B@example.com")
	f.Add("mailto:a@example.com%0d%0a")
	f.Fuzz(func(t *testing.T, url string) {
		to, err := receivers(url)
		if err != nil {
			return
		}
		for _, address := range to {
			require.NotContains(t, address, "\n")
			require.False(t, strings.ContainsAny(address, " \r\n<>,\x00"), address)
			_, err := mail.ParseAddress(address)
			require.NoError(t, err)
		}
	})
}
