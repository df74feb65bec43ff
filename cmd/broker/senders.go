package main

import (
	"github.com/penstock-broker/penstock/hotpath/push"
	"github.com/penstock-broker/penstock/internal/feature/alerts"
	"github.com/penstock-broker/penstock/internal/feature/mail"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/tool/egress"
	"github.com/penstock-broker/penstock/internal/tool/share"
)

// checkMail checks the settings of mails.
func (c *config) checkMail(f *faults) {
	if c.AlertSMTPURL != "" {
		_, wrong := mail.NewServer(c.AlertSMTPURL, c.AlertFrom, nil)
		for _, w := range wrong {
			f.add("BROKER_ALERT_"+w.Setting, "%v", w.Err)
		}
	} else if f.fine("BROKER_ALERT_SMTP_URL") {
		if c.AlertFrom != "" {
			f.add("BROKER_ALERT_FROM", "needs BROKER_ALERT_SMTP_URL")
		}
		if len(c.AlertTo) > 0 {
			f.add("BROKER_ALERT_TO", "needs BROKER_ALERT_SMTP_URL")
		}
	}
	if _, err := mail.Receivers(c.AlertTo); len(c.AlertTo) > 0 && err != nil {
		f.add("BROKER_ALERT_TO", "must be a list of at most %d mail addresses, separated by commas", mail.MostReceivers)
	}
	if _, err := mail.Domains(c.MailDomains); err != nil {
		f.add("BROKER_MAIL_DOMAINS", "must be a list of domains such as example.com, separated by commas")
	}
}

// mailServer returns the mail server; nil: there is none. The settings are checked.
func (c *config) mailServer() *mail.Server {
	if c.AlertSMTPURL == "" {
		return nil
	}
	server, _ := mail.NewServer(c.AlertSMTPURL, c.AlertFrom, nil)
	return server
}

// An optionalSender is a sender that some builds have: its row, or that it is absent, what its consumers share, and
// how it ends.
type optionalSender struct {
	row    push.Sender
	bounds []*share.Bound
	close  func()
}

// newSenders makes the table of senders. The settings are checked. With nil the table checks callback URLs only.
func (c *config) newSenders(callbacks egress.Policy, client *egress.Client, of *catalogue.Catalogue) (*push.Senders,
	*mail.Sender, optionalSender) {
	domains, _ := mail.Domains(c.MailDomains)
	mails := mail.New(mail.Options{Server: c.mailServer(), Missing: "BROKER_ALERT_SMTP_URL", Domains: domains,
		Catalogue: of})
	nats := natsSender(callbacks, client)
	to, _ := mail.Receivers(c.AlertTo)
	return push.NewSenders(push.Web(client, callbacks), mails.Row(), nats.row, alerts.Posts(client, c.AlertWebhookURL),
		alerts.Mails(mails, to)), mails, nats
}
