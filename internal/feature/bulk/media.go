package bulk

import (
	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/coding"
)

var errMedia = problem.New(415, "unsupported_media_type", "A bulk is application/x-ndjson, text/csv in UTF-8 with a "+
	"header line, multipart/form-data with one of these as its part file, or application/json with a FileURL.")

const mediaMultipart = "multipart/form-data"

// formatOf returns the format of rows of a media type, "" for another media type.
func formatOf(kind string, params map[string]string) (format string, err error) {
	switch kind {
	case "text/csv":
		format = CSV
	case apitype.MediaLines:
		format = NDJSON
	default:
		return "", nil
	}
	if params["header"] == "absent" || !inUTF8(params) {
		return "", errMedia
	}
	return format, nil
}

func inUTF8(params map[string]string) bool {
	switch params["charset"] {
	case "", "utf-8", "UTF-8", "utf8", "UTF8", "us-ascii", "US-ASCII":
		return true
	}
	return false
}

// codingsOf returns a value of Content-Encoding without what means nothing, if the broker undoes it.
func codingsOf(value string) (string, error) {
	value, err := coding.Clean(value)
	switch {
	case err != nil:
		return "", errCodingSyntax
	case !coding.Small(value):
		return "", errCodings
	}
	return value, nil
}

var (
	errCodingSyntax = problem.New(400, "invalid_content_encoding",
		"Content-Encoding must be a list of content codings, such as gzip, of at most 255 bytes.")
	errNotCoded = problem.New(400, "invalid_content_encoding",
		"The body is not coded as its Content-Encoding says: it is damaged, cut short, or followed by something else.")
	errDecodedLarge = problem.New(413, "body_too_large", "The decoded body is larger than this broker accepts.")
	// errCodings names what the body of a bulk is decoded from: it may have its decoder for hours.
	errCodings = problem.New(415, "unsupported_media_type", "A bulk is decoded from gzip or deflate, and once: send it "+
		"in one of these, or uncoded.")
	errPacked = problem.New(400, "invalid_content_encoding", "The rows begin as gzip does, and no Content-Encoding "+
		"says so.")
)
