package archive

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// List prints the files, a line each; with lines of JSON, their manifests and folders.
func List(out io.Writer, all []*Entry, asJSON bool) error {
	if asJSON {
		for _, e := range all {
			line, err := json.Marshal(e)
			if err == nil {
				_, err = out.Write(append(line, '\n'))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CHANNEL\tFROM\tTO\tMESSAGES\tBYTES\tFOLDER")
	const seconds = "2006-01-02T15:04:05Z"
	for _, e := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", e.Channel, e.From.UTC().Format(seconds), e.To.UTC().Format(seconds),
			e.Count, strconv.FormatInt(e.Bytes, 10), e.Folder)
	}
	return t.Flush()
}
