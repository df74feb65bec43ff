package policy

// A Disclosure says what a request to a consumer tells of the broker and its records.
type Disclosure uint8

// The values of Disclosure.
const (
	DiscloseAll   Disclosure = iota // the token of the consumer, and the IDs of what the request is about
	DiscloseLeast                   // what Standard Webhooks needs
)

var disclosureNames = []string{"full", "minimal"}

func parseDisclosure(text string) (Disclosure, error) {
	return oneOf[Disclosure](text, disclosureNames)
}

// String is the inverse of parseDisclosure.
func (d Disclosure) String() string { return disclosureNames[min(int(d), len(disclosureNames)-1)] }
