package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/model/ident"
)

// The names of the two files of a folder.
const (
	messagesName = "messages.jsonl.zst"
	manifestName = "manifest.json"
)

// maxManifest bounds the size of a manifest, bytes.
const maxManifest = 64 << 10

// formatVersion is that of the lines and the manifest.
const formatVersion = 1

// A Manifest says what a file has.
type Manifest struct {
	Version int      `json:"Version"`
	Channel string   `json:"Channel"`
	Count   int      `json:"Count"` // messages
	First   ident.ID `json:"First"` // oldest message
	Last    ident.ID `json:"Last"`  // newest message
	// From and To are when the oldest and the newest message were received.
	From   apitype.Time `json:"From"`
	To     apitype.Time `json:"To"`
	File   string       `json:"File"`   // name of the file with the messages
	Bytes  int64        `json:"Bytes"`  // its size
	SHA256 string       `json:"SHA256"` // its digest, hexadecimal
	// Lines is its size before compression.
	Lines     int64        `json:"Lines"`
	CreatedAt apitype.Time `json:"CreatedAt"`
}

func timeOf(ms int64) apitype.Time { return apitype.Time{Time: time.UnixMilli(ms).UTC()} }

// readManifest decodes a manifest.
func readManifest(text []byte) (m Manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: the manifest is no JSON: %w", ErrDamaged, err)
	}
	switch {
	case m.Version > formatVersion:
		return m, fmt.Errorf("the manifest has the version %d, and this program knows %d", m.Version, formatVersion)
	case m.Version < 1, m.Count < 1, len(m.SHA256) != 64, m.File != messagesName:
		return m, fmt.Errorf("%w: the manifest lacks Version, Count, SHA256 or File", ErrDamaged)
	}
	return m, nil
}

// ErrDamaged means that a file of the archive is not as its manifest says.
var ErrDamaged = errors.New("the file is damaged")
