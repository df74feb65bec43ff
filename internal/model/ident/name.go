package ident

import (
	"strconv"
	"strings"
)

// MaxName is the longest name of a resource or message in bytes.
const MaxName = 255

// AlertsChannel is the channel on which the broker itself publishes alerts. It always exists.
const AlertsChannel = "~alerts"

// StatusChannel is the channel on which the broker tells producers what became of their messages. It
// always exists.
const StatusChannel = "~status"

// AuditChannel is the channel on which the broker tells who changed what, while it has a consumer. It always
// exists.
const AuditChannel = "~audit"

// Reserved reports whether only the broker itself may make a resource of that name.
func Reserved(name string) bool { return len(name) > 0 && name[0] == '~' }

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

const forward = "dead."

// ForwardID is the message ID of the forward of the dead letter of a job that died at that time: the
// same for each forward of one death, so a repeat is refused.
func ForwardID(job ID, diedMs int64) string {
	return forward + job.String() + "." + strconv.FormatInt(diedMs, 36)
}

// Made reports whether a message ID has a form that only the broker may give one: that of an ID, of a
// message or of a job, and that of a ForwardID. A client that could take such an ID for its own
// message would stand in the place of another message, which exists or is still to come.
func Made(messageID string) bool {
	if of, ok := strings.CutPrefix(messageID, forward); ok && len(of) > TextSize && of[TextSize] == '.' {
		messageID = of[:TextSize] // whatever follows: a ForwardID, or what a recurrence makes one of
	}
	return Own(messageID)
}

// farMs is a time that the clock of no broker shows: about the year 3084.
const farMs = 1 << 45

// Own reports whether a text is an ID of a time that the broker has IDs of. IDs of rs/xid, which other
// programs give their messages, have the same form; their first 32 bits are seconds, so that read as an ID of the
// broker they are of the year 4000 and later.
func Own(text string) bool {
	id, err := Parse(text)
	return err == nil && id.Millis() < farMs
}

// Forwarded reports whether a message ID is a ForwardID.
func Forwarded(messageID string) bool {
	return strings.HasPrefix(messageID, forward) && Made(messageID)
}

// MadeRecurring reports whether the messages of a recurrence with that ID, to which a full stop and a
// number are appended, would have IDs of which Made is true.
func MadeRecurring(messageID string) bool { return Made(messageID) || Made(messageID+".1") }

const replies = "~replies-"

// Sender is the consumer of a channel of replies: it posts them to the producer.
const Sender = "sender"

// Replies is the channel on which the broker publishes the replies to the producer with that number.
func Replies(producerNo uint32) string { return replies + strconv.FormatUint(uint64(producerNo), 10) }

// RepliesTo returns the number of the producer of a channel of replies, 0 of another channel.
func RepliesTo(channelID string) uint32 {
	text, ok := strings.CutPrefix(channelID, replies)
	if !ok {
		return 0
	}
	no, _ := strconv.ParseUint(text, 10, 32)
	return uint32(no)
}
