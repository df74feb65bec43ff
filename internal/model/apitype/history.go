package apitype

// A HistoryRange is what happened in a range of time, by slots.
type HistoryRange struct {
	Step   string        `json:"Step"`
	Result []HistorySlot `json:"Result"`
	Marks  []HistoryMark `json:"Marks"`
}

// A HistorySlot is what all brokers counted in a slot of time. The percentiles are in ms, 0 without any.
type HistorySlot struct {
	At            Time    `json:"At"` // its begin
	Accepted      int64   `json:"Accepted"`
	Delivered     int64   `json:"Delivered"`
	Failed        int64   `json:"Failed"`
	Dead          int64   `json:"Dead"`
	OldestSeconds float64 `json:"OldestSeconds"`
	AckP50        float64 `json:"AckP50"`
	AckP99        float64 `json:"AckP99"`
	DeliveryP50   float64 `json:"DeliveryP50"`
	DeliveryP99   float64 `json:"DeliveryP99"`
}

// A HistoryMark is something that happened, which may explain the slots.
type HistoryMark struct {
	At   Time   `json:"At"`
	Kind string `json:"Kind"`
	Text string `json:"Text"`
}
