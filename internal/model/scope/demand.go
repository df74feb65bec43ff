package scope

// A Door is what a route demands of a caller, as far as scopes go.
type Door uint8

// The doors. The zero value is opened by no scope.
const (
	Closed     Door = iota // the admin token alone, API tokens, and routes that read no token
	Management             // what open management and the admin token open
	Owner                  // the same, and the tokens of a consumer
	Sole                   // the tokens of a consumer, and not the admin token
	Publish                // the token of a channel, beside that of a producer
)

// A Demand is what one request asks for.
type Demand struct {
	Door     Door
	Reads    bool   // it changes nothing
	Dead     bool   // it is about dead letters
	Channel  string // what the path names; "": nothing
	Consumer string
}

// Opens reports whether one of the scopes opens a request.
func (s Set) Opens(d Demand) bool {
	for i := range s {
		if s[i].opens(&d) {
			return true
		}
	}
	return false
}

func (s *Scope) opens(d *Demand) bool {
	if d.Door == Closed {
		return false
	}
	managed := d.Door == Management || d.Door == Owner
	switch s.Kind {
	case Read:
		return managed && d.Reads
	case Write:
		return managed
	case Channel:
		return d.Channel != "" && d.Channel == s.Channel
	case Consumer:
		return (d.Door == Owner || d.Door == Sole) && d.Consumer != "" && d.Channel == s.Channel &&
			d.Consumer == s.Consumer
	case Dead:
		return d.Dead && (d.Door == Owner || d.Door == Sole)
	}
	return false
}

// StandsForChannel reports whether the scopes stand for the token of a channel, beside the token of an owner in it:
// of the consumer, where one is named.
func (s Set) StandsForChannel(channel, consumer string) bool {
	return s.Opens(Demand{Door: Publish, Channel: channel}) || consumer != "" && s.StandsForConsumer(channel, consumer)
}

// StandsForConsumer reports whether the scopes stand for the token of a consumer.
func (s Set) StandsForConsumer(channel, consumer string) bool {
	return s.Opens(Demand{Door: Sole, Channel: channel, Consumer: consumer})
}

// ReadsOnly reports whether no scope lets a person change anything.
func (s Set) ReadsOnly() bool {
	for _, one := range s {
		if one.Kind != Read {
			return false
		}
	}
	return true
}
