package apitype

// An Alert is the payload of a message on the channel ~alerts, and of an alert webhook.
type Alert struct {
	// "consumer.dead", "consumer.revived", "consumer.gone", "consumer.slow", "dlq.growing" or "books.differ"
	Event      string `json:"Event"`
	ChannelID  string `json:"ChannelID"` // of the consumer
	ConsumerID string `json:"ConsumerID"`
	At         Time   `json:"At"` // of a transition, StateChangedAt of the consumer
	Reason     string `json:"Reason"`
	// ReviveURL revives the consumer. Only where it is dead or gone, and BROKER_PUBLIC_URL is set.
	ReviveURL string `json:"ReviveURL,omitempty"`
}
