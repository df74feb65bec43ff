package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the document
	"io"
	"sync"

	"github.com/penstock-broker/penstock/internal/tool/asset"
)

// packed is openapi.json in gzip, a tenth of its size.
//
//go:embed openapi.json.gz
var packed []byte

// text is openapi.json.
var text = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // it is embedded
	}
	all, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return all
})

// The files of the routes. They are made when the first client asks for them.
var (
	JSON = sync.OnceValue(func() *asset.File {
		return asset.Packed("application/json", "default-src 'none'", text(), packed)
	})
	Routes = sync.OnceValue(func() *asset.File { return asset.New(html, pagePolicy, renderRoutes()) })
	Errors = sync.OnceValue(func() *asset.File { return asset.New(html, pagePolicy, renderErrors()) })
	Try    = sync.OnceValue(func() *asset.File { return asset.New(html, tryPolicy, renderTry()) })
	Script = sync.OnceValue(func() *asset.File { return asset.New(scriptMedia, "default-src 'none'", []byte(script)) })
)

const html = "text/html; charset=utf-8"
