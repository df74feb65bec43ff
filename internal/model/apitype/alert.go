package apitype

// An Alert is the payload of a message on the channel ~alerts, and of an alert webhook.
type Alert struct {
	// "consumer.dead", "consumer.revived", "consumer.gone", "consumer.slow", "dlq.growing", "books.differ",
	// "consumer.late", "consumer.unpolled", "channel.silent" or "archive.failing"; with ".over" the end of one of the
	// last four or of "dlq.growing"
	Event      string `json:"Event"`
	ChannelID  string `json:"ChannelID"`  // of the consumer, or what the alert is about
	ConsumerID string `json:"ConsumerID"` // "": the alert is about the channel
	At         Time   `json:"At"`         // of a transition, StateChangedAt of the consumer
	Reason     string `json:"Reason"`
	// ReviveURL revives the consumer. Only where it is dead or gone, and BROKER_PUBLIC_URL is set.
	ReviveURL string `json:"ReviveURL,omitempty"`
}
