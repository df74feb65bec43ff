package policy

// A Kind is how a consumer gets its jobs. The kinds are bits, so that a field has a set of those to which
// it means something.
type Kind uint8

// The kinds.
const (
	ByPull Kind = 1 << iota // its workers ask
	ByHTTP                  // requests to an http or https callback
	ByMail                  // mails to a mailto callback
	ByNATS                  // messages to a subject of a nats or tls callback
)
