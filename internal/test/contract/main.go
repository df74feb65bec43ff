package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/penstock-broker/penstock/internal/test/traffic"
)

// documentFile is the document, from the folder of this module.
const documentFile = "../../feature/openapi/openapi.json"

func main() {
	ok, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports whether document and traffic are alike.
func run(args []string, out io.Writer) (bool, error) {
	flags := flag.NewFlagSet("contract", flag.ContinueOnError)
	forward := flags.Bool("forward", false, "only what the traffic has and the document has not")
	codes := flags.Bool("codes", false, "also print the codes of each route that none of its answers had")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if flags.NArg() != 1 {
		return false, errors.New("one folder with records is needed")
	}
	d, err := readDocument(documentFile)
	if err != nil {
		return false, err
	}
	c, n, err := read(d, flags.Arg(0))
	if err != nil {
		return false, err
	}
	wrong := unmeant(c.forward(), malformedText)
	if !*forward {
		wrong = append(wrong, c.backward(unseenText)...)
	}
	for _, line := range wrong {
		fmt.Fprintln(out, line)
	}
	if *codes {
		for _, line := range c.saidCodes.without(c.seenCodes) {
			fmt.Fprintln(out, "no answer of the route had it:", line)
		}
	}
	fmt.Fprintf(out, "openapi.json and %d exchanges: %d differences\n", n, len(wrong))
	return len(wrong) == 0, nil
}

// read compares the document with the records of a folder.
func read(d *document, folder string) (*comparison, int, error) {
	all, err := traffic.Read(folder, "")
	if err != nil {
		return nil, 0, err
	}
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("%s has no records", folder)
	}
	c, err := compare(d, all)
	return c, len(all), err
}

// A comparison is the two sets of sentences.
type comparison struct {
	said, seen           items
	saidCodes, seenCodes items
	valid                *validity
}

func compare(d *document, all []traffic.Exchange) (*comparison, error) {
	valid, err := newValidity(d)
	if err != nil {
		return nil, err
	}
	c := &comparison{seen: items{}, seenCodes: items{}, valid: valid}
	c.said, c.saidCodes = d.said()
	for _, e := range all {
		d.seen(e, c.seen, c.seenCodes)
		if e.Route != "" && d.at(e.Route) != nil {
			if err := valid.check(d, e); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// forward returns what the traffic has and the document has not.
func (c *comparison) forward() (out []string) {
	for _, one := range append(c.seen.without(c.said), c.seenCodes.without(c.saidCodes)...) {
		out = append(out, "in traffic and not in the document: "+one)
	}
	return append(out, c.valid.all()...)
}

// backward returns what the document has and the traffic has not.
func (c *comparison) backward(text string) []string { return unexplained(c.said, c.seen, text) }
