// Package sentence turns errors into text for people. The errors of this program begin with the
// names of the packages that returned them, which tell a programmer where to look and tell users
// and operators nothing. Settings, answers, reasons and the log have these texts.
package sentence

import "strings"

// names are those that begin errors. A test keeps them complete.
var names = map[string]bool{
	"accept": true, "alerts": true, "answer": true, "api": true, "bulk": true, "catalogue": true,
	"cloudevents": true, "cluster": true, "coding": true, "console": true, "consumerstate": true,
	"cron": true, "durable": true, "egress": true, "exchange": true, "front": true, "guard": true,
	"hotpath": true,
	"ident":   true, "importer": true, "intake": true, "jobs": true, "journal": true, "jsonread": true, "outbox": true,
	"penstock": true, "policy": true, "pull": true, "push": true, "quota": true, "reaper": true,
	"redisq": true, "seedfile": true, "share": true, "signed": true, "sqs": true, "statusevents": true,
	"ui": true,
}

// Of returns the text of an error without the names of packages; "" for nil.
func Of(err error) string {
	if err == nil {
		return ""
	}
	return Text(err.Error())
}

// Text returns a text without the names of packages that begin it, or one of the errors in it.
func Text(text string) string {
	if !strings.Contains(text, ": ") {
		return text
	}
	var out strings.Builder
	begins := true // an error begins here
	for text != "" {
		if begins {
			if name, rest, found := strings.Cut(text, ": "); found && names[name] {
				text = rest
				continue
			}
		}
		end := strings.IndexAny(text, ":;(\n")
		if end < 0 {
			break
		}
		separator := text[end]
		end++
		if begins = separator == '(' || separator == '\n' || strings.HasPrefix(text[end:], " "); begins &&
			(separator == ':' || separator == ';') {
			end++
		}
		out.WriteString(text[:end])
		text = text[end:]
	}
	return out.String() + text
}
