package policy

import (
	"errors"
	"time"

	"github.com/penstock-broker/penstock/internal/tool/quantity"
)

// An Intake is how a channel takes messages in. It is comparable; the zero value is the default.
type Intake struct {
	Duplicates Duplicates
	Identity   Identity
	Ack        Ack
	Budget     Budget
	// ExpectEvery is the longest time without a new message that is no alarm; 0: any.
	ExpectEvery time.Duration
	PublishRate Rate
	Keeping     Keeping
}

// Rhythm is ExpectEvery as a text.
func (i *Intake) Rhythm() string { return short(i.ExpectEvery) }

// Duplicates says what is answered to a message whose ID is stored already, with the same content.
type Duplicates uint8

// The values of Duplicates.
const (
	Refuse      Duplicates = iota // 409 duplicate_message_id
	Acknowledge                   // 200 with the location of the stored message
)

var duplicatesNames = []string{"refuse", "acknowledge"}

func parseDuplicates(text string) (Duplicates, error) {
	return oneOf[Duplicates](text, duplicatesNames)
}

// String is the inverse of parseDuplicates.
func (d Duplicates) String() string { return duplicatesNames[min(int(d), len(duplicatesNames)-1)] }

// An Identity says among which messages an X-Broker-Message-ID is unique.
type Identity uint8

// The values of Identity.
const (
	IdentityChannel  Identity = iota // those of the channel
	IdentityProducer                 // those of the producer in the channel
)

var identityNames = []string{"channel", "producer"}

func parseIdentity(text string) (Identity, error) { return oneOf[Identity](text, identityNames) }

// String is the inverse of parseIdentity.
func (i Identity) String() string { return identityNames[min(int(i), len(identityNames)-1)] }

// An Ack says what the success of a publish promises.
type Ack uint8

// The values of Ack.
const (
	AckDurable    Ack = iota // the store has committed the message
	AckJournal               // the same, or after the latency budget: the broker's own disk has it
	AckReplicated            // the store has committed it, and a second server has it
)

var ackNames = []string{"durable", "journal", "replicated"}

func parseAck(text string) (Ack, error) { return oneOf[Ack](text, ackNames) }

// String is the inverse of parseAck.
func (a Ack) String() string { return ackNames[min(int(a), len(ackNames)-1)] }

// A Budget is how long a publish waits for the store before the journal takes the message. The
// zero value is the default.
type Budget time.Duration

// The default of a Budget, and its bounds. The upper one is below the time within which every
// request is answered.
const (
	usualBudget             = 65 * time.Millisecond
	leastBudget, mostBudget = time.Millisecond, 4 * time.Second
)

// Duration returns the budget.
func (b Budget) Duration() time.Duration {
	if b == 0 {
		return usualBudget
	}
	return time.Duration(b)
}

func parseBudget(text string) (Budget, error) {
	d, err := quantity.Duration(text)
	if err != nil || d < leastBudget || d > mostBudget {
		return 0, errors.New("must be a duration from 1ms to 4s")
	}
	return Budget(d), nil
}

// String is the inverse of parseBudget.
func (b Budget) String() string { return short(b.Duration()) }

// intakeFields is every setting that a channel may have.
var intakeFields = table[Intake]{
	value("duplicates", "`refuse`: a message that is stored already is answered 409 `duplicate_message_id`; "+
		"`acknowledge`: 200 with its `Location` and `Idempotent-Replayed: true`",
		parseDuplicates, func(p *Intake) *Duplicates { return &p.Duplicates }),
	value("identity", "`channel`: an `X-Broker-Message-ID` is unique in the channel; `producer`: unique among the "+
		"messages of its producer, and then at most 247 bytes. Consumers then know its messages by the broker's IDs",
		parseIdentity, func(p *Intake) *Identity { return &p.Identity }),
	value("ack", "`durable`: 201 when the store has committed the message; `journal`: the same, or 202 after "+
		"`latencyBudget` when the broker's own disk has it; `replicated`: 201 only when a second server of the store has it",
		parseAck, func(p *Intake) *Ack { return &p.Ack }),
	value("latencyBudget", "a duration from `1ms` to `4s`, by default `65ms`: how long a publish with `ack=journal` "+
		"waits for the store",
		parseBudget, func(p *Intake) *Budget { return &p.Budget }),
	duration("expectEvery", "a duration from `100ms` to `8760h`, or `0`: where no message was stored for so long "+
		"there is an [alert](notices.md#late-unpolled-silent) `channel.silent`. `0`: never",
		0, maxWait, func(p *Intake) *time.Duration { return &p.ExpectEvery }),
	value("publishRate", "`100/1s`: the most messages that the channel accepts in any window of that length, at all "+
		"brokers together; `none`: no limit",
		parseRate, func(p *Intake) *Rate { return &p.PublishRate }),
	value("retention", "a duration from `1m`, or `0`: the age at which a message is [removed](operate/keeping.md) whose "+
		"jobs are all over; `0`: never. By default `BROKER_RETENTION`",
		parseAge, func(p *Intake) *Age { return &p.Keeping.Retention }),
	value("retentionMessages", "the number of newest messages that are kept: an older one is removed once its jobs are "+
		"all over; `0`: any number",
		parseMost, func(p *Intake) *Most { return &p.Keeping.Messages }),
	value("retentionBytes", "the same by size, like `10GiB`: the bytes of payloads and metadata headers of the newest "+
		"messages that are kept; `0`: any size",
		parseBytes, func(p *Intake) *Most { return &p.Keeping.Bytes }),
	value("deadRetention", "a duration from `1m`, or `0`: how long a dead letter keeps its message after its "+
		"death, at least; `0`: for ever. By default `BROKER_DEAD_RETENTION`",
		parseAge, func(p *Intake) *Age { return &p.Keeping.DeadRetention }),
	value("attemptRetention", "a duration from `1m`, or `0`: how long a failed attempt of a job that is over is kept; "+
		"`0`: as long as its message. By default `BROKER_ATTEMPT_RETENTION`",
		parseAge, func(p *Intake) *Age { return &p.Keeping.AttemptRetention }),
}

// IntakeNames returns the names of the fields of a channel, as forms have them.
func IntakeNames() []string { return intakeFields.names() }

// IntakeTable returns name and meaning of each field of a channel, for the documentation.
func IntakeTable() [][2]string { return intakeFields.about() }

// IntakeOf returns the intake of a record.
func IntakeOf(record string) Intake { return intakeFields.lay(Intake{}, decode(record)) }

// ShowIntake returns the settings of a record.
func ShowIntake(record string) []Setting {
	p := IntakeOf(record)
	return intakeFields.show(&p, decode(record), nil)
}

// MergeIntake returns the record that results when form fields are laid over a record, as
// Book.Merge does. The error is a *FieldError.
func MergeIntake(record string, form map[string]string) (string, error) {
	set := decode(record)
	if err := intakeFields.merge(set, form); err != nil {
		return "", err
	}
	return encode(set)
}
