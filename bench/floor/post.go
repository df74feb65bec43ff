package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/tool/egress"
)

// workers is the number of requests that may be under way, as BROKER_CONSUMER_CONCURRENCY is by
// default; postWithin is the time of one.
const (
	workers    = 64
	postWithin = 10 * time.Second
)

// A plainPoster sends the payload and a token.
type plainPoster struct{ client fasthttp.HostClient }

func (p *plainPoster) post(k *durable.Consumer, m *durable.Message) error {
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(k.CallbackURL)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType(m.ContentType)
	req.Header.Set("X-Broker-Consumer-Token", k.Token)
	req.SetBodyRaw(m.Payload)
	if err := p.client.DoTimeout(req, res, postWithin); err != nil {
		return err
	}
	if res.StatusCode()/100 != 2 {
		return fmt.Errorf("status %d", res.StatusCode())
	}
	return nil
}

// A guardedPoster sends what the broker sends, with its client.
type guardedPoster struct {
	client *egress.Client
	floor  *floor
}

func (p guardedPoster) post(k *durable.Consumer, m *durable.Message) error {
	target := p.floor.target.Load()
	if target == nil {
		return errors.New("no target")
	}
	req := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(req)
	h := &req.Header
	h.SetContentType(m.ContentType)
	h.SetUserAgent("Penstock")
	job := m.ID.Job(k.Position).String()
	for _, field := range [][2]string{
		{"X-Broker-Consumer-Token", k.Token}, {"X-Broker-Channel-ID", p.floor.channel.Load().ID},
		{"X-Broker-Consumer-ID", k.ID},
		{"X-Broker-Message-ID", m.PathID()}, {"X-Broker-Message-Priority", "0"}, {"X-Broker-Job-ID", job},
		{"X-Broker-Attempt", "1"}, {"X-Request-ID", job + "-1"},
	} {
		h.Set(field[0], field[1])
	}
	req.SetBodyRaw(m.Payload)
	res := target.Post(req, postWithin)
	if res.Err != nil {
		return res.Err
	}
	if res.Status/100 != 2 {
		return fmt.Errorf("status %d", res.Status)
	}
	return nil
}
