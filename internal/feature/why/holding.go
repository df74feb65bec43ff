package why

import "github.com/penstock-broker/penstock/durable"

// Holding returns the codes of what keeps all jobs of a consumer back: its state, and a hold by its answers.
func Holding(state durable.ConsumerState, held bool) (codes []Code) {
	switch state {
	case durable.StatePaused:
		codes = append(codes, Paused)
	case durable.StateGone:
		codes = append(codes, Gone)
	case durable.StateDead:
		codes = append(codes, Tombstoned)
	case durable.StateProbing:
		codes = append(codes, Probing)
	}
	if held {
		codes = append(codes, RetryAfter)
	}
	return codes
}
