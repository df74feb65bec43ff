package bench

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Behaviour is how a push sink treats deliveries. The treatment is drawn for each attempt, so a
// retry may succeed.
type Behaviour struct {
	Slow                 time.Duration // before every answer
	Fail, Hang, Throttle float64       // fractions of all attempts: 500, no answer, 429

	draws atomic.Uint64
}

// A fate is the treatment of one attempt.
type fate uint8

const (
	fateAccept fate = iota
	fateFail
	fateHang
	fateThrottle
)

// ParseBehaviour reads "ok", "slow=50ms", "fail=5%", "hang=1%", "429=10%", or
// several of them with commas. Without a number fail is 5 %, hang 1 %, 429 10 %.
func ParseBehaviour(s string) (*Behaviour, error) {
	b := &Behaviour{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch name {
		case "ok", "":
			if given {
				err = fmt.Errorf("ok takes no value")
			}
		case "slow":
			if b.Slow, err = time.ParseDuration(value); err == nil && (b.Slow < 0 || b.Slow > 10*time.Minute) {
				err = fmt.Errorf("want 0 to 10m")
			}
		case "fail":
			b.Fail, err = parsePart(value, given, 0.05)
		case "hang":
			b.Hang, err = parsePart(value, given, 0.01)
		case "429":
			b.Throttle, err = parsePart(value, given, 0.10)
		default:
			err = fmt.Errorf("want ok, slow=50ms, fail=5%%, hang=1%% or 429=10%%")
		}
		if err != nil {
			return nil, fmt.Errorf("sink %q: %w", part, err)
		}
	}
	if b.Fail+b.Hang+b.Throttle > 1 {
		return nil, fmt.Errorf("sink %q: the parts exceed 100 %%", s)
	}
	return b, nil
}

func parsePart(s string, given bool, def float64) (float64, error) {
	if !given {
		return def, nil
	}
	number, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("want a fraction like 5%% or 0.05")
	}
	return f, nil
}

// Faulty reports whether attempts fail on purpose: then copies are no surprise.
func (b *Behaviour) Faulty() bool { return b.Fail+b.Hang+b.Throttle > 0 }

func (b *Behaviour) draw() fate {
	if !b.Faulty() {
		return fateAccept
	}
	r := float64(mix(b.draws.Add(1))>>11) / (1 << 53)
	switch {
	case r < b.Fail:
		return fateFail
	case r < b.Fail+b.Hang:
		return fateHang
	case r < b.Fail+b.Hang+b.Throttle:
		return fateThrottle
	default:
		return fateAccept
	}
}
