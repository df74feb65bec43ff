// Command webhook-relay takes signed webhooks of a provider, stores them in Penstock before it answers, and
// has Penstock deliver each to services that may be slow or down. Deliveries are signed as well.
//
//	webhook-relay -secret whsec_... -on 127.0.0.1:9100 -to billing=http://127.0.0.1:9101/hook -to ...
//
// With -receive ADDRESS it is such a service instead: it prints what comes with a valid signature.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const channel = "webhooks"

func main() {
	secret := flag.String("secret", "", "secret of the provider, or of the consumer with -receive: whsec_...")
	on := flag.String("on", "127.0.0.1:9100", "address for the webhooks of the provider")
	receive := flag.String("receive", "", "be a service at this address instead, and print what comes")
	var to targets
	flag.Var(&to, "to", "name=URL of a service; may be repeated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if *receive != "" {
		err = serveReceiver(ctx, *receive, *secret)
	} else {
		err = serveRelay(ctx, *on, *secret, to)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// targets are services by name.
type targets [][2]string

func (t *targets) String() string { return fmt.Sprint(*t) }

func (t *targets) Set(text string) error {
	name, url, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("want name=URL")
	}
	*t = append(*t, [2]string{name, url})
	return nil
}

// serveRelay takes the webhooks of the provider.
func serveRelay(ctx context.Context, addr, secret string, to targets) error {
	provider, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return fmt.Errorf("-secret: %w", err)
	}
	client, err := penstock.New(penstock.Options{}) // PENSTOCK_URL, or http://127.0.0.1:8080
	if err != nil {
		return err
	}
	defer client.Close()
	if err := subscribe(ctx, client, to); err != nil {
		return err
	}
	return serve(ctx, addr, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = provider.Verify(body, r.Header)
		}
		if err != nil {
			http.Error(w, "no valid signature", http.StatusBadRequest)
			return
		}
		// The provider repeats a webhook with its ID: so it is one message. It hears 204 only when the message is
		// on disk, and tries again otherwise.
		_, err = client.Publish(r.Context(), channel, penstock.Message{ID: r.Header.Get("webhook-id"), Payload: body,
			ContentType: r.Header.Get("Content-Type")})
		if err != nil {
			log.Print(err)
			http.Error(w, "not stored", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// subscribe makes a push consumer for each service. The secret of a new one is printed once: nobody can ask
// the broker for it later.
func subscribe(ctx context.Context, client *penstock.Client, to targets) error {
	if _, _, err := client.Manage().Put(ctx, penstock.ChannelPath(channel), nil); err != nil {
		return err
	}
	for _, one := range to {
		path := penstock.ConsumerPath(channel, one[0])
		fields := penstock.Fields{"callbackUrl": one[1]}
		if _, err := client.Manage().Get(ctx, path); err != nil {
			fields["signingSecret"] = "generate"
		}
		consumer, created, err := client.Manage().Put(ctx, path, fields)
		if err != nil {
			return err
		}
		if created {
			fmt.Printf("%s gets webhooks at %s, signed with %s\n", one[0], one[1], consumer.Policy["SigningSecret"])
		}
	}
	return nil
}

// serveReceiver is a service that gets the webhooks.
func serveReceiver(ctx context.Context, addr, secret string) error {
	receiver, err := penstock.NewReceiver(penstock.ReceiverOptions{Secrets: []string{secret}})
	if err != nil {
		return fmt.Errorf("-secret: %w", err)
	}
	receiver.On(channel, func(_ context.Context, m *penstock.Received) error {
		fmt.Printf("%s %s\n", m.MessageID, m.Payload)
		return nil
	})
	return serve(ctx, addr, receiver.ServeHTTP)
}

// serve runs a server until ctx ends, and lets its requests finish.
func serve(ctx context.Context, addr string, handler http.HandlerFunc) error {
	server := &http.Server{Addr: addr, Handler: handler, ReadTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(last)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
