package presence

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// A view is what one broker knows of a consumer, as it stands in Redis.
type view struct {
	At      [kinds]int64 `json:"at"`
	Workers []Seen       `json:"w,omitempty"`
}

// A Seen is a worker with its last contact.
type Seen struct {
	Worker
	AtMs    int64  `json:"at"` // Unix ms
	Address string `json:"a,omitempty"`
}

// A Presence is what is known of a consumer. A zero time: there was no such contact, or it is forgotten.
type Presence struct {
	Claimed, Listed, Moved, Renewed time.Time
	Workers                         []Seen // the living ones, by name
}

// newest is the time of the last contact in a view.
func (v *view) newest() int64 { return slices.Max(v.At[:]) }

// encode is the text of a view.
func (v *view) encode() string {
	text, err := json.Marshal(v)
	if err != nil { // it has texts and numbers
		return "{}"
	}
	return string(text)
}

// decode reads the text of a view. One that another release wrote may lack what this one knows.
func decode(text string) (v view) {
	if json.Unmarshal([]byte(text), &v) != nil {
		return view{}
	}
	return v
}

// merge makes one presence of what the brokers know. Of a worker that several brokers, or two
// addresses, have heard of, the last contact counts.
func merge(now int64, views []view) Presence {
	var at [kinds]int64
	byName := map[string]Seen{}
	for _, v := range views {
		for kind, ms := range v.At {
			at[kind] = max(at[kind], ms)
		}
		for _, w := range v.Workers {
			if now-w.AtMs > Living.Milliseconds() {
				continue
			}
			if known, ok := byName[w.Name]; !ok || known.AtMs < w.AtMs {
				byName[w.Name] = w
			}
		}
	}
	p := Presence{Claimed: timeOf(at[Claim]), Listed: timeOf(at[List]), Moved: timeOf(at[Move]),
		Renewed: timeOf(at[Renewal])}
	for _, w := range byName {
		p.Workers = append(p.Workers, w)
	}
	slices.SortFunc(p.Workers, func(a, b Seen) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
