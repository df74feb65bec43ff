package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"

	"github.com/valyala/fasthttp"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

const (
	exportPath = "/ui/dlq/export"
	// exportedPages of exportedPage letters are in a file, unless it gets longer than mostExport bytes before.
	exportedPages, exportedPage = 10, "100"
	mostExport                  = 8 << 20
)

// exportURL is the file of the dead letters of a consumer, or of one cause.
func exportURL(channel, consumer, fingerprint string) string {
	q := url.Values{"channel": {channel}, "consumer": {consumer}}
	if fingerprint != "" {
		q.Set("fingerprint", fingerprint)
	}
	return exportPath + "?" + q.Encode()
}

// export answers with dead letters as a file, one in a line, the oldest message first, as the API lists them: without
// payloads. It costs two statements for each hundred.
func (d *Dashboard) export(ctx context.Context, rc *fasthttp.RequestCtx, visit Visit) {
	v := d.view(rc, visit)
	q := v.query("channel", "consumer", "fingerprint")
	ask := url.Values{"limit": {exportedPage}}
	if q.Has("fingerprint") {
		ask.Set("fingerprint", q.Get("fingerprint"))
	}
	if visit.Hold != nil {
		if err := visit.Hold(mostExport); err != nil {
			d.refuse(v, visit, err)
			return
		}
	}
	var out bytes.Buffer
	for range exportedPages {
		var list apitype.DeadLetters
		err := v.src.Get(ctx, "/channel/{channel}/consumer/{consumer}/dlq", map[string]string{"channel": q.Get("channel"),
			"consumer": q.Get("consumer")}, ask, &list)
		if err != nil {
			d.refuse(v, visit, err)
			return
		}
		for i := range list.DeadJobs {
			line, err := json.Marshal(&list.DeadJobs[i])
			if err != nil {
				d.refuse(v, visit, err)
				return
			}
			out.Write(append(line, '\n'))
		}
		next, err := url.Parse(list.Pages.Next)
		if err != nil || list.Pages.Next == "" || out.Len() > mostExport {
			break
		}
		ask.Set("first", next.Query().Get("first"))
	}
	rc.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	rc.Response.Header.Set(fasthttp.HeaderContentDisposition, `attachment; filename="dead-letters.ndjson"`)
	rc.SetContentType(apitype.MediaLines)
	rc.Response.SetBodyRaw(out.Bytes())
}
