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
	Group    string // that the channel carries now; "": none
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
	case Group:
		return d.Channel != "" && d.Group != "" && d.Group == s.Group
	case Consumer:
		return (d.Door == Owner || d.Door == Sole) && d.Consumer != "" && d.Channel == s.Channel &&
			d.Consumer == s.Consumer
	case Dead:
		return d.Dead && (d.Door == Owner || d.Door == Sole)
	}
	return false
}

// A Place is a channel with the group that it carries now, and a consumer of it or "".
type Place struct{ Channel, Group, Consumer string }

// StandsForChannel reports whether the scopes stand for the token of a channel, beside the token of an owner in it:
// of the consumer, where one is named.
func (s Set) StandsForChannel(p Place) bool {
	return s.Opens(Demand{Door: Publish, Channel: p.Channel, Group: p.Group}) || p.Consumer != "" && s.StandsForConsumer(p)
}

// StandsForConsumer reports whether the scopes stand for the token of a consumer.
func (s Set) StandsForConsumer(p Place) bool {
	return s.Opens(Demand{Door: Sole, Channel: p.Channel, Group: p.Group, Consumer: p.Consumer})
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
