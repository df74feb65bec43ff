package policy

// Expiry returns when a job of a message expires, Unix ms, or 0 for never. The age counts from
// the commit of the message or, if the job was redriven, from the redrive; ttlMs is the time
// to live of the message itself, 0 for none. Of it and the consumer's the shorter one counts.
func (p *Policy) Expiry(committedMs, redrivenMs, ttlMs int64) int64 {
	life := p.TTL.Milliseconds()
	if life == 0 || ttlMs > 0 && ttlMs < life {
		life = ttlMs
	}
	if life == 0 {
		return 0
	}
	return max(committedMs, redrivenMs) + life
}
