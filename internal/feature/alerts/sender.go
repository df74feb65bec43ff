package alerts

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/mail"
	"github.com/penstock-broker/penstock/internal/model/policy"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// Posts is the row of the sender that posts alerts to the URL of the webhook; "": this broker has none. Nothing that
// it says of an attempt shows the URL, which may contain a secret.
func Posts(client *egress.Client, to string) push.Sender {
	return push.Sender{Schemes: []string{webhookScheme}, Kind: policy.ByHTTP, Own: true,
		Target: func(egress.Rule, string, string) (push.Target, error) {
			if to == "" {
				return nil, errors.New("this broker has no " + WebhookSetting)
			}
			target, err := client.Target(egress.Configured, to, "")
			if err != nil {
				return nil, errors.New("this broker may not post to the URL in " + WebhookSetting)
			}
			return push.Posting(&poster{target, hostName(to)}), nil
		}}
}

// Mails is the row of the sender that mails alerts to the addresses of the setting.
func Mails(s *mail.Sender, to []string) push.Sender { return s.Own(mailScheme, MailSetting, to) }

// A poster posts to the configured URL.
type poster struct {
	to   *egress.Target
	host string // "": it is an address
}

// Post keeps no answer: servers quote the path of a request that they refuse.
func (w *poster) Post(req *fasthttp.Request, timeout time.Duration) egress.Result {
	req.Header.Set(egress.MadeByBroker, "broker")
	res := w.to.Post(req, timeout)
	res.Answer = nil
	if res.Err != nil {
		res.Words = egress.Say(res.Err)
		if w.host != "" {
			res.Words = strings.ReplaceAll(res.Words, w.host, "of "+WebhookSetting)
		}
	}
	return res
}

// hostName is the name of the host of a URL as errors have it; "": the host is an address.
func hostName(rawURL string) string {
	u, err := url.Parse(rawURL) // checked
	if err != nil {
		return ""
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	return name
}
