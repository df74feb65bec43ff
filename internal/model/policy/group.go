package policy

// GroupLimits are the limits of a group of channels. They are comparable; the zero value is none.
type GroupLimits struct {
	MaxChannels int // 0: any number
	PublishRate Rate
}

// Bounds of the channels of a group.
const maxMaxChannels = 1_000_000

// groupFields is every setting that a group may have.
var groupFields = table[GroupLimits]{
	number("maxChannels", "0 to 1000000: most channels that carry the group; `0`: any number", 0, maxMaxChannels,
		func(p *GroupLimits) *int { return &p.MaxChannels }),
	value("publishRate", "`100/1s`: the most messages that its channels together accept in any window of that length, "+
		"at all brokers together; `none`: no limit",
		parseRate, func(p *GroupLimits) *Rate { return &p.PublishRate }),
}

// GroupNames returns the names of the fields of a group, as forms have them.
func GroupNames() []string { return groupFields.names() }

// GroupTable returns name and meaning of each field of a group, for the documentation.
func GroupTable() [][2]string { return groupFields.about() }

// GroupOf returns the limits of a group's record.
func GroupOf(record string) GroupLimits { return groupFields.lay(GroupLimits{}, decode(record)) }

// ShowGroup returns the settings of a record.
func ShowGroup(record string) []Setting {
	p := GroupOf(record)
	return groupFields.show(&p, decode(record), nil)
}

// MergeGroup returns the record that results when form fields are laid over a record, as Book.Merge
// does. The error is a *FieldError.
func MergeGroup(record string, form map[string]string) (string, error) {
	set := decode(record)
	if err := groupFields.merge(set, form); err != nil {
		return "", err
	}
	return encode(set)
}
