package api

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/model/problem"
)

const (
	defaultPage = 25
	maxPage     = 100
)

// A pageQuery contains the parameters of a list.
type pageQuery struct {
	First string     // ID the page starts at, "" for the beginning
	Size  int        // 1..max
	Place string     // where First was, which counts more: what it names may be removed, or have moved; "" for none
	Since *time.Time // statusChangedSince
	Group string     // of channels, "": any
	keep  url.Values // parameters that the link to the next page carries
}

// readPage reads limit or size, first, place and statusChangedSince. It ignores other parameters; links do
// not repeat them.
func readPage(ctx *fasthttp.RequestCtx, defaultSize, maxSize int) (pageQuery, error) {
	return parsePage(string(ctx.URI().QueryString()), defaultSize, maxSize)
}

func parsePage(query string, defaultSize, maxSize int) (pageQuery, error) {
	q := pageQuery{Size: defaultSize, keep: url.Values{}}
	values, err := url.ParseQuery(query)
	if err != nil {
		return q, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The query string is not well encoded.")
	}
	if values.Has("limit") && values.Has("size") {
		return q, problem.New(fasthttp.StatusBadRequest, "invalid_query",
			"The parameters limit and size are two names of one.")
	}
	for _, name := range []string{"limit", "size", "first", "place", "statusChangedSince"} {
		list := values[name]
		if len(list) > 1 {
			return q, problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter "+name+" occurs more than once.")
		}
		if len(list) == 0 {
			continue
		}
		switch value := list[0]; name {
		case "limit", "size":
			if q.Size, err = parseSize(name, value, maxSize); err != nil {
				return q, err
			}
			q.keep.Set(name, strconv.Itoa(q.Size))
		case "first":
			if value != "" && !ident.ValidName(value) {
				return q, invalidID("The parameter first")
			}
			q.First = value
		case "place":
			q.Place = value
		case "statusChangedSince":
			t, err := parseSince(value)
			if err != nil {
				return q, err
			}
			q.Since = &t
			q.keep.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	return q, nil
}

// readGroup reads the parameter group of a list of channels.
func (q *pageQuery) readGroup(rc *fasthttp.RequestCtx) error {
	switch values := rc.QueryArgs().PeekMulti("group"); {
	case len(values) == 0 || len(values) == 1 && len(values[0]) == 0:
		return nil
	case len(values) > 1:
		return problem.New(fasthttp.StatusBadRequest, "invalid_query", "The parameter group occurs more than once.")
	case !ident.ValidName(string(values[0])):
		return invalidID("The parameter group")
	default:
		q.Group = string(values[0])
		q.keep.Set("group", q.Group)
		return nil
	}
}

func parseSize(name, value string, maxSize int) (int, error) {
	if value != "" && strings.Trim(value, "0123456789") == "" {
		n, err := strconv.Atoi(value)
		if err != nil || n > maxSize { // err: digits only, so it is out of range
			return maxSize, nil
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, problem.Newf(fasthttp.StatusBadRequest, "invalid_size", "The parameter %s must be a number above 0.", name)
}

// parseTime reads an RFC 3339 time of a query. It takes a blank for a plus sign that was not encoded:
// "+02:00" pasted into a URL arrives as " 02:00".
func parseTime(value string) (time.Time, error) {
	return apitype.ParseTime(strings.ReplaceAll(value, " ", "+"))
}

// parseSince reads the parameter statusChangedSince.
func parseSince(value string) (time.Time, error) {
	t, err := parseTime(value)
	if err != nil {
		return t, problem.New(fasthttp.StatusBadRequest, "invalid_date",
			"The parameter statusChangedSince must be an RFC 3339 time, such as 2026-01-31T15:04:05Z.")
	}
	return t.UTC(), nil
}

// nextAt is next for a list that goes on from a place, also when first is not there any more.
func (q pageQuery) nextAt(path, first, place string) apitype.Pages {
	if place != first {
		q.keep.Set("place", place)
	}
	return q.next(path, first)
}

// next returns the link to the page that starts at first.
func (q pageQuery) next(path, first string) apitype.Pages {
	q.keep.Set("first", first)
	return apitype.Pages{Next: path + "?" + q.keep.Encode()}
}
