package pull

import (
	"errors"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/redisq"
)

// limitIn returns the name that a query has for limit. Lists had it as size once.
func limitIn(args *fasthttp.Args) string {
	if args.Has("size") {
		return "size"
	}
	return "limit"
}

func parseLimit(args *fasthttp.Args) (int, error) {
	name := limitIn(args)
	if !args.Has(name) {
		return defaultListed, nil
	}
	text := string(args.Peek(name))
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") {
		return maxListed, nil
	}
	if err != nil || n < 0 || strings.HasPrefix(text, "+") {
		return 0, problem.Newf(400, "invalid_limit", "%s must be an integer of at least 0.", name)
	}
	return min(n, maxListed), nil
}

// formatCursor returns a cursor, opaque to clients: score and message ID of the last listed job.
func formatCursor(c redisq.Cursor) string {
	return strconv.FormatInt(c.Score, 36) + "." + c.ID.String()
}

func parseCursor(b []byte) (*redisq.Cursor, error) {
	if len(b) == 0 {
		return nil, nil
	}
	invalid := problem.New(400, "invalid_cursor", "after must be taken from Pages.next.")
	score, id, ok := strings.Cut(string(b), ".")
	if !ok || len(score) > 12 {
		return nil, invalid
	}
	n, err := strconv.ParseInt(score, 36, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		return nil, invalid
	}
	parsed, err := ident.Parse(id)
	if err != nil {
		return nil, invalid
	}
	return &redisq.Cursor{Score: n, ID: parsed}, nil
}
