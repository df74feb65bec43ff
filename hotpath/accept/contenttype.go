package accept

import "sync"

// maxContentTypes bounds how many content types are kept: producers use few,
// and one that sends a new one each time must not fill the memory.
const maxContentTypes = 256

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
