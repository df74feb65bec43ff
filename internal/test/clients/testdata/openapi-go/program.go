// Program publishes a message and claims its job, with a client that oapi-codegen made of openapi.json.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const channel, consumer = "made-of-openapi", "worker"

func run(ctx context.Context, broker string) error {
	c, err := NewClientWithResponses(broker, WithRequestEditorFn(tokens))
	if err != nil {
		return err
	}
	producer, err := c.PutProducerWithFormdataBodyWithResponse(ctx, "maker", nil, ProducerForm{Token: to("p")})
	if err != nil || producer.JSON201 == nil {
		return failed("the producer", err, producer)
	}
	made, err := c.PutChannelWithFormdataBodyWithResponse(ctx, channel, nil, ChannelForm{Token: to("c")})
	if err != nil || made.JSON201 == nil {
		return failed("the channel", err, made)
	}
	worker, err := c.PutChannelConsumerWithFormdataBodyWithResponse(ctx, channel, consumer, nil,
		ConsumerForm{Type: to("pull"), Token: to("k")})
	if err != nil || worker.JSON201 == nil {
		return failed("the consumer", err, worker)
	}

	post := func() (*PostChannelBroadcastResponse, error) {
		return c.PostChannelBroadcastWithBodyWithResponse(ctx, channel, &PostChannelBroadcastParams{
			XBrokerMessageID: to("order-1"), XBrokerMessagePriority: to(7), XBrokerProducerID: to("maker")},
			"application/json", strings.NewReader(`{"order":1}`))
	}
	first, err := post()
	if err != nil {
		return err
	}
	again, err := post()
	if err != nil || again.ApplicationproblemJSON409 == nil {
		return failed("a repeat", err, again)
	}

	claimed, err := c.PostChannelConsumerClaimWithResponse(ctx, channel, consumer, nil, ClaimRequest{Limit: to(10),
		Wait: to("20s"), Timeout: to(60)})
	if err != nil || claimed.JSON200 == nil || len(claimed.JSON200.Result) != 1 {
		return failed("a claim", err, claimed)
	}
	job := claimed.JSON200.Result[0]
	moved, err := c.PostChannelConsumerJobWithResponse(ctx, channel, consumer, job.ID,
		&PostChannelConsumerJobParams{XBrokerLease: &job.Lease}, MoveRequest{NextState: "DELIVERED"})
	if err != nil || moved.StatusCode() != 202 {
		return failed("a report", err, moved)
	}
	stored, err := c.GetChannelMessageWithResponse(ctx, channel, "order-1", nil)
	if err != nil || stored.JSON200 == nil || len(stored.JSON200.Jobs) != 1 {
		return failed("the message", err, stored)
	}
	return json.NewEncoder(os.Stdout).Encode([]any{worker.JSON201.Type, first.StatusCode(),
		again.ApplicationproblemJSON409.Code, job.Priority, job.Message.Payload, []string{stored.JSON200.Jobs[0].Status}})
}

// failed is the error of a step without an answer, or with another one than is wanted.
func failed(step string, err error, answer interface{ Status() string }) error {
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%s: %s", step, answer.Status())
}

// tokens sets the tokens, which the document has as security schemes.
func tokens(_ context.Context, r *http.Request) error {
	for name, token := range map[string]string{"X-Broker-Channel-Token": "c", "X-Broker-Producer-Token": "p",
		"X-Broker-Consumer-Token": "k"} {
		r.Header.Set(name, token)
	}
	return nil
}

func to[T any](value T) *T { return &value }
