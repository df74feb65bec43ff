package main

import (
	"slices"
	"strings"

	"github.com/penstock-broker/penstock/api"
)

// securitySchemes are the tokens, as package credentials reads them.
var securitySchemes = object{
	{"admin", apiKey("X-Broker-Admin-Token", "the admin token of the installation")},
	{"channel", apiKey("X-Broker-Channel-Token", "the token of the channel")},
	{"producer", apiKey("X-Broker-Producer-Token", "the token of the producer, whom X-Broker-Producer-ID names")},
	{"consumer", apiKey("X-Broker-Consumer-Token", "the token of the consumer")},
	{"bearer", object{{"type", "http"}, {"scheme", "bearer"}, {"description",
		"stands for each of the tokens above whose header the request lacks"}}},
	{"session", object{{"type", "apiKey"}, {"in", "cookie"}, {"name", "penstock_ui"}, {"description",
		"a session of the dashboard"}}},
	{"sqs", apiKey("Authorization", "signature version 4 of AWS, with an access key of the channel")},
}

func apiKey(header, text string) object {
	return object{{"type", "apiKey"}, {"in", "header"}, {"name", header}, {"description", text}}
}

// all is one way to be admitted: all these tokens.
func all(schemes ...string) (out object) {
	for _, name := range schemes {
		out.add(name, []string{})
	}
	if out == nil {
		return object{}
	}
	return out
}

// ofProducer reports whether a request with the tokens of a producer may use a route.
func ofProducer(r api.Route) bool {
	switch r.Access {
	case api.AccessPublished, api.AccessJob:
		return true
	case api.AccessData:
		return !strings.Contains(r.Path, "/consumer/")
	}
	return false
}

// securityOf are the ways to be admitted to a route. The empty one comes first where management may be open.
func securityOf(r api.Route) []object {
	management := []object{all(), all("admin"), all("bearer")}
	consumer := []object{all("channel", "consumer"), all("channel", "bearer"), all("bearer")}
	producer := []object{all("channel", "producer"), all("channel", "bearer"), all("bearer")}
	switch r.Access {
	case api.AccessOps, api.AccessLink:
		return []object{}
	case api.AccessManagement:
		return management
	case api.AccessOwn:
		return slices.Concat(management, consumer[:2])
	case api.AccessPublished:
		return slices.Concat(management, producer[:2])
	case api.AccessJob:
		return slices.Concat(management, consumer[:2], producer[:1])
	case api.AccessSender:
		return append(management, all("producer"))
	case api.AccessForm:
		return []object{all(), all("consumer"), all("producer"), all("bearer")}
	case api.AccessAdmin:
		return management[1:]
	case api.AccessRetrigger:
		return slices.Concat(management[1:], consumer[:2])
	case api.AccessUI:
		return append(management, all("session"))
	case api.AccessSQS:
		return []object{all(), all("sqs")}
	}
	if ofProducer(r) {
		return producer
	}
	return consumer
}
