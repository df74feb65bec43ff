// Package filter decides by an expression whether a consumer gets a message. The language is CEL,
// https://cel.dev. An expression is checked when it is set, and what one evaluation may cost is
// bounded whatever the message contains: a filter runs on the path of every message of its
// channel.
//
// The variables are payload (the JSON, null for anything else), headers (a map with names in lower
// case), priority, contentType and producer. Numbers of JSON are doubles, and those
// integers that a double may not have exactly are int or uint.
package filter
