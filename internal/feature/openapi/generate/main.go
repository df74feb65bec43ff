// Command generate writes the description of the API in OpenAPI 3.1, openapi.json, and the same in gzip: make openapi
// runs it.
package main

import (
	"fmt"
	"os"

	"github.com/penstock-broker/penstock/internal/tool/asset"
)

//go:generate go run .

// root is the folder of the repository and file the document, from here.
const (
	root = "../../../.."
	file = "../openapi.json"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	text, err := generate(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(file+".gz", asset.Pack(text), 0o644)
}
