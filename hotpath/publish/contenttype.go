package publish

import (
	"sync"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// maxContentTypes bounds how many content types are kept: producers use few,
// and one that sends a new one each time must not fill the memory.
const maxContentTypes = 256

var knownTypes contentTypes

// setContentType sets the content type. A line, unlike a request, may say that it has none.
func (d *Draft) setContentType(text []byte) (err error) {
	if d.contentType = ""; len(text) > 0 {
		d.contentType, err = knownTypes.of(text)
	}
	return err
}

// A contentTypes gives equal content types one string, so that a message needs
// no memory of its own for it.
type contentTypes struct {
	mu    sync.RWMutex
	known map[string]string
}

// of returns the content type of a request, the default when it names none, or
// an error when it cannot be sent on as a header.
func (c *contentTypes) of(header []byte) (string, error) {
	if len(header) == 0 {
		return defaultContentType, nil
	}
	c.mu.RLock()
	known, ok := c.known[string(header)]
	c.mu.RUnlock()
	if ok {
		return known, nil
	}
	text := string(header)
	if err := checkContentType(text); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]string{}
	}
	if len(c.known) < maxContentTypes {
		c.known[text] = text
	}
	return text, nil
}

// checkContentType refuses what could not be sent on as a header.
func checkContentType(s string) error {
	if len(s) > 255 {
		return problem.New(400, "invalid_content_type", "The content type is longer than 255 bytes.")
	}
	for i := range len(s) {
		if s[i] < 0x20 && s[i] != '\t' || s[i] == 0x7f {
			return problem.New(400, "invalid_content_type", "The content type holds a control character.")
		}
	}
	return nil
}
