package jsontext

// A Cursor is a place in JSON text, for readers that need less than encoding/json does.
type Cursor struct {
	Text []byte
	At   int
}

// Space skips white space.
func (c *Cursor) Space() {
	for c.At < len(c.Text) && (c.Text[c.At] == ' ' || c.Text[c.At] == '\t' || c.Text[c.At] == '\r' ||
		c.Text[c.At] == '\n') {
		c.At++
	}
}

// Take skips b if it is next, and reports whether it was.
func (c *Cursor) Take(b byte) bool {
	if c.At < len(c.Text) && c.Text[c.At] == b {
		c.At++
		return true
	}
	return false
}

// Ends reports whether nothing but white space is left, and skips it.
func (c *Cursor) Ends() bool {
	c.Space()
	return c.At == len(c.Text)
}
