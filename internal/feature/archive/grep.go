package archive

import (
	"context"
	"io"
	"regexp"
)

// Grep prints the lines of the messages that match, and returns their number: by an ID, the producer, a
// header as "name: value", or the payload.
func Grep(ctx context.Context, out io.Writer, all []*Entry, what *regexp.Regexp) (found int, err error) {
	for _, e := range all {
		err := e.Each(ctx, func(r *Record, line []byte) error {
			if !r.matches(what) {
				return nil
			}
			found++
			_, err := out.Write(line)
			return err
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

func (r *Record) matches(what *regexp.Regexp) bool {
	for _, text := range []string{r.ID.String(), r.MessageID, r.Producer} {
		if what.MatchString(text) {
			return true
		}
	}
	for name, value := range r.Headers {
		if what.MatchString(name + ": " + value) {
			return true
		}
	}
	return what.Match(r.Body())
}
