package simulation

import "time"

// journals makes channels whose messages go to journals again and again, and kills brokers there.
func journals(p *plan) {
	p.calm = false
	p.journal = journaling{on: true, budget: 20 * time.Millisecond, bytes: 1 << 20, age: time.Hour, crash: 100}
	p.repeat(4, storeAway)
	for i := range p.events {
		p.events[i].span = max(p.events[i].span, p.active/8)
	}
}

// damages makes channels that are paused while their messages are in journals, of which each life
// leaves a damaged byte.
func damages(p *plan) {
	journals(p)
	p.journal.flips, p.journal.pauses = 1000, true
	p.channels, p.messages, p.hanging = 2, 2*p.messages, hanging{}
	p.repeat(5, kill)
}

// greedy makes three greedy neighbours.
func greedy(p *plan) { p.greed = greed{producers: 3, attacks: 2, bodies: 12} }

// hangs makes three hanging neighbours, in a world where nothing else fails.
func hangs(p *plan) {
	p.calm, p.orders, p.rates, p.holds, p.window = true, false, false, false, 1000
	p.journal, p.events, p.store, p.queue, p.crash, p.slow = journaling{}, nil, seamRates{}, seamRates{}, 0, 0
	p.hanging = hanging{consumers: 3, ever: true}
}

// retains removes what is over as early as brokers may be told to, with a snapshot of
// Redis that is older than that when it comes back.
func retains(p *plan) {
	p.calm = false
	p.journal = journaling{} // the key of a message that is removed goes with it: a journal left behind repeats it
	p.retention, p.active = keptFor, 90*time.Second
	p.messages *= 2
	p.hanging = hanging{} // which need too long for as many
	for i, at := range []int{10, 20, 80, 84, 88} {
		kind := snapshot
		if i >= 2 {
			kind = restore
		}
		p.events = append(p.events, trouble{at: time.Duration(at) * time.Second, kind: kind})
	}
}

// clockGoesBack sets the clock of Redis back by an hour, twice.
func clockGoesBack(p *plan) {
	p.calm = false
	for i := range 2 {
		p.events = append(p.events, trouble{at: p.active * time.Duration(i+1) / 3, kind: clockJump, span: -time.Hour})
	}
}

// wipesUnderWay empties Redis while consumers take their time, and nothing else fails.
func wipesUnderWay(p *plan) {
	p.events, p.store, p.queue, p.crash, p.slow = nil, seamRates{}, seamRates{}, 0, 0
	p.consumer = consumerRates{slow: 900}
	p.repeat(6, wipe)
}

// restores takes Redis back to an old snapshot three times.
func restores(p *plan) { p.repeat(3, snapshot, restore) }

// repeat adds troubles, one after the other, so many times.
func (p *plan) repeat(times int, kinds ...troubleKind) {
	p.calm = false
	n := times * len(kinds)
	for i := range n {
		p.events = append(p.events, trouble{at: p.active * time.Duration(i+1) / time.Duration(n+1),
			kind: kinds[i%len(kinds)]})
	}
}

// stepsBack sets the clock of the store's server back three times.
func stepsBack(p *plan) {
	p.schedules = false
	p.repeat(3, stepBack)
	for i := range p.events {
		if p.events[i].kind == stepBack {
			p.events[i].span = 6 * time.Second
		}
	}
}

// goesBack takes the store back to an earlier state, without the outcomes since.
func goesBack(p *plan) {
	p.schedules, p.responses, p.replays, p.bulks, p.orders = false, false, false, false, false
	p.active = max(p.active, 12*time.Second)
	p.repeat(1, keepState, goBack)
}
