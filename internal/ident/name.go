package ident

// MaxName is the longest name of a resource or message in bytes.
const MaxName = 255

// ValidName reports whether s may be the ID that a client chose for a resource
// or a message: 1 to 255 of A-Z a-z 0-9 . _ ~ : @ -. The two path segments "."
// and ".." are no names, because clients and proxies remove them from a path
// before it arrives.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > MaxName || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		if !nameByte[s[i]] {
			return false
		}
	}
	return true
}

var nameByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~:@-") {
		t[c] = true
	}
	return t
}()
