package publishrate

import (
	"slices"
	"time"

	"github.com/penstock-broker/penstock/redisq"
)

// A window counts the places that were taken in a rate, in buckets of 1/64 of its length, as the script of
// Redis does.
type window []bucket

type bucket struct {
	end time.Time // all of its places were taken before
	n   int
}

// free returns the places that are free now.
func (w *window) free(r redisq.PublishRate, now time.Time) int {
	*w = slices.DeleteFunc(*w, func(b bucket) bool { return !b.end.After(now.Add(-r.Per)) })
	n := r.N
	for _, b := range *w {
		n -= b.n
	}
	return n
}

// wait returns how long there is no free place.
func (w *window) wait(r redisq.PublishRate, now time.Time) (wait time.Duration) {
	n := w.free(r, now)
	for _, b := range *w {
		if n > 0 {
			break
		}
		n += b.n
		wait = b.end.Add(r.Per).Sub(now)
	}
	return wait
}

// take takes n places, after free.
func (w *window) take(n int, r redisq.PublishRate, now time.Time) {
	grain := max(r.Per/64, time.Millisecond)
	end := now.Truncate(grain).Add(grain)
	if last := len(*w) - 1; last >= 0 && !(*w)[last].end.Before(end) {
		(*w)[last].n += n
		return
	}
	*w = append(*w, bucket{end, n})
}

// places is redisq.Queue.TakePlaces in windows by the names of the rates.
func places(windows map[string]*window, n int, rates []redisq.PublishRate, now time.Time) redisq.Places {
	out := redisq.Places{N: n, By: -1}
	for _, r := range rates {
		if windows[r.Name] == nil {
			windows[r.Name] = new(window)
		}
		out.N = min(out.N, max(windows[r.Name].free(r, now), 0))
	}
	for i, r := range rates {
		w := windows[r.Name]
		if out.N > 0 {
			w.take(out.N, r, now)
		}
		if out.N == n {
			continue
		}
		if wait := w.wait(r, now); wait > out.Wait {
			out.Wait, out.By = wait, i
		}
	}
	return out
}
