package policy

// A Sender is what a producer wants to get back. It is comparable; the zero value is nothing.
type Sender struct {
	ReplyURL      ReplyURL     // where responses go to that consumers with responses=callback give
	SigningSecret Secret       // signs each reply
	StatusEvents  StatusEvents // what it hears of its messages
	// MaxStoredBytes and MaxScheduled bound what the producer stores.
	MaxStoredBytes, MaxScheduled Most
	PublishRate                  Rate
}

// A ReplyURL is the URL to which the broker posts replies. Empty: none.
type ReplyURL string

func parseReplyURL(text string) (ReplyURL, error) {
	if text == "" {
		return "", nil
	}
	return ReplyURL(text), checkURL(text)
}

// String is the inverse of parseReplyURL.
func (u ReplyURL) String() string { return string(u) }

// senderFields is every setting that a producer may have.
var senderFields = table[Sender]{
	value("replyUrl", "an absolute http or https URL: the broker posts the responses of consumers with "+
		"`responses=callback` to it, and batches of `statusEvents`",
		parseReplyURL, func(p *Sender) *ReplyURL { return &p.ReplyURL }),
	secret("signingSecret", "`whsec_` and base64 of 24 to 64 bytes, or `generate`: signs replies and batches as "+
		"Standard Webhooks. Shown once",
		parseSecret, func(p *Sender) *Secret { return &p.SigningSecret }),
	value("statusEvents", "`off`, `all`, or some of `delivered`, `failed`, `dead`, separated by commas: what the "+
		"producer hears of the jobs of its messages, at `replyUrl`, else on the channel `~status`",
		parseStatusEvents, func(p *Sender) *StatusEvents { return &p.StatusEvents }),
	value("maxStoredBytes", "a size like `10GiB`: most bytes of payloads and metadata headers that the "+
		"producer stores: its messages until retention removes them, its schedules, and the bodies of its bulks that are "+
		"not over; `0`: no bound. By default `BROKER_PRODUCER_MAX_STORED`",
		parseBytes, func(p *Sender) *Most { return &p.MaxStoredBytes }),
	value("maxScheduled", "most scheduled messages of the producer that wait; `0`: no bound. By default "+
		"`BROKER_PRODUCER_MAX_SCHEDULED`",
		parseMost, func(p *Sender) *Most { return &p.MaxScheduled }),
	value("publishRate", "`100/1s`: the most messages that the producer may publish in any window of that length, to all "+
		"channels and at all brokers together; `none`: no limit",
		parseRate, func(p *Sender) *Rate { return &p.PublishRate }),
}

// SenderNames returns the names of the fields of a producer, as forms have them.
func SenderNames() []string { return senderFields.names() }

// SenderTable returns name and meaning of each field of a producer, for the documentation.
func SenderTable() [][2]string { return senderFields.about() }

// SenderOf returns the settings of a producer's record.
func SenderOf(record string) Sender { return senderFields.lay(Sender{}, decode(record)) }

// MergeSender returns the record that results when form fields are laid over a record, as
// Book.Merge does. The error is a *FieldError.
func MergeSender(record string, form map[string]string) (string, error) {
	set := decode(record)
	if err := senderFields.merge(set, form); err != nil {
		return "", err
	}
	return encode(set)
}

// ShowSender returns the settings of a record. The secrets of the named fields are not masked.
func ShowSender(record string, reveal ...string) []Setting {
	p := SenderOf(record)
	return senderFields.show(&p, decode(record), reveal)
}
