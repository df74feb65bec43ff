package apitype

// Workers are the workers of a pull consumer that the brokers heard of within a minute.
type Workers struct {
	Result []Worker `json:"Result"` // by name, never null
	Pages  Pages    `json:"Pages"`  // there is one page
}

// A Worker is what a worker says of itself in X-Broker-Worker, and when it was heard of.
type Worker struct {
	Name       string   `json:"Name"`
	Version    string   `json:"Version"`  // "": it did not say
	Slots      int      `json:"Slots"`    // jobs that it works on at a time; 0: it did not say
	InFlight   int      `json:"InFlight"` // jobs that it has now
	LastSeenAt Time     `json:"LastSeenAt"`
	Address    string   `json:"Address"` // of its last request, without the port
	Tasks      []string `json:"Tasks"`   // that it takes, never null; empty: it did not say
}
