package redisq

import (
	"fmt"
	"strconv"
	"strings"
)

// meta is the value of a job's field in the meta hash, packed as
//
//	priority|attempts|flags|token|ready
//
// in decimal. token is empty unless the job is leased. ready is empty unless it is leased or parked: the
// job's time in the ready set before, for Release and Unpark. A lease of a worker that said its name has
// |name;version more.
type meta struct {
	priority, attempts   int
	flags                Flags
	token, ready, worker string
}

// parseMeta reads a packed meta value. A plain job has the value "".
func parseMeta(s string) (meta, error) {
	if s == "" {
		return meta{}, nil
	}
	p := strings.Split(s, "|")
	if len(p) != 5 && len(p) != 6 {
		return meta{}, fmt.Errorf("meta %q has %d parts", s, len(p))
	}
	var n [3]int
	for i := range n {
		v, err := strconv.Atoi(p[i])
		if err != nil {
			return meta{}, fmt.Errorf("meta %q: part %d is no number", s, i)
		}
		n[i] = v
	}
	m := meta{priority: n[0], attempts: n[1], flags: Flags(n[2]), token: p[3], ready: p[4]}
	if len(p) == 6 {
		m.worker = p[5]
	}
	return m, nil
}
