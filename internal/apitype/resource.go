package apitype

import "time"

// A Producer is the answer to PUT and GET of a producer.
type Producer struct {
	ID    string `json:"ID"`
	Name  string `json:"Name"`
	Token string `json:"Token"`
	// ChangedAt is the time of the last change, in whole seconds. It equals Last-Modified.
	ChangedAt time.Time `json:"ChangedAt"`
}

// A Channel is the answer to PUT and GET of a channel.
type Channel struct {
	ID           string    `json:"ID"`
	Name         string    `json:"Name"`
	Token        string    `json:"Token"`
	ChangedAt    time.Time `json:"ChangedAt"` // as of a Producer
	ConsumersURL string    `json:"ConsumersURL"`
	MessagesURL  string    `json:"MessagesURL"`
	BroadcastURL string    `json:"BroadcastURL"`
}

// A Consumer is the answer to PUT and GET of a consumer.
type Consumer struct {
	ID                 string    `json:"ID"`
	Name               string    `json:"Name"`
	Token              string    `json:"Token"`
	ChangedAt          time.Time `json:"ChangedAt"`   // as of a Producer
	CallbackURL        string    `json:"CallbackURL"` // "": none, which only a pull consumer may have
	DeadLetterQueueURL string    `json:"DeadLetterQueueURL"`
	Type               string    `json:"Type"`               // "push" or "pull"
	Protocol           string    `json:"Protocol,omitempty"` // "h2"; absent: HTTP/1.1
	Policy             Policy    `json:"Policy"`             // effective values
	Inherited          []string  `json:"Inherited"`          // members of Policy that the consumer does not set itself
}

// A Policy is the delivery policy of a consumer, as texts that the form of a consumer accepts.
// Package policy has the rules. The names are those of its fields with a capital first letter;
// the members are in alphabetical order.
type Policy struct {
	Backoff    string `json:"Backoff"`    // waits before the retries: "5s,30s,1m0s", or "constant:30s"
	MaxRetries string `json:"MaxRetries"` // retries after the first attempt: "5"
	RetryOn    string `json:"RetryOn"`    // "all", or codes and classes: "5xx,404"
	Timeout    string `json:"Timeout"`    // of one push attempt, as a Go duration: "30s"
}

// A List is a page of producers, channels, consumers or messages.
type List struct {
	Result []string  `json:"Result"` // links to the resources, never null
	Pages  Pages     `json:"Pages"`
	Links  *struct{} `json:"Links"` // always null: clients of the older implementation decode it
}

// Pages links a page to the next one.
type Pages struct {
	Next string `json:"next,omitempty"` // absent: this is the last page
}

// A ProducerForm is the form of a PUT of a producer. An absent field keeps its value.
type ProducerForm struct {
	Name  *string `form:"name"`  // UTF-8 without control characters; empty counts as absent. A new producer has its ID
	Token *string `form:"token"` // visible ASCII characters; empty counts as absent. A new producer gets a random one
}

// A ChannelForm is the form of a PUT of a channel.
type ChannelForm struct {
	Name  *string `form:"name"`  // as of a ProducerForm
	Token *string `form:"token"` // as of a ProducerForm
}

// A ConsumerForm is the form of a PUT of a consumer. An absent field keeps its value. An empty
// field of the policy returns to the default of the installation.
type ConsumerForm struct {
	Name        *string `form:"name"`        // as of a ProducerForm
	Token       *string `form:"token"`       // as of a ProducerForm
	CallbackURL *string `form:"callbackUrl"` // absolute http or https URL; empty: none, which only a pull consumer may have
	Type        *string `form:"type"`        // "push" or "pull"; empty: push
	Protocol    *string `form:"protocol"`    // "h2"; empty: HTTP/1.1
	Timeout     *string `form:"timeout"`     // this and the following: see Policy
	MaxRetries  *string `form:"maxRetries"`
	Backoff     *string `form:"backoff"`
	RetryOn     *string `form:"retryOn"`
}

// A RedriveForm is the form of a redrive of all dead letters of a consumer.
type RedriveForm struct {
	Requeue string `form:"requeue"` // the consumer's token
}
