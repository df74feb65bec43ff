package apitype

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/internal/model/auditlog"
)

// An AuditEntry is one change that somebody who manages the broker has made.
type AuditEntry struct {
	Number   uint64          `json:"Number"`
	At       Time            `json:"At"`
	Who      string          `json:"Who"`
	From     string          `json:"From"`
	Action   string          `json:"Action"`
	Resource string          `json:"Resource"`
	Before   json.RawMessage `json:"Before,omitempty"` // as it is stored: the hash is over it
	After    json.RawMessage `json:"After,omitempty"`
	Hash     string          `json:"Hash"`
}

// An AuditList is a page of the audit log.
type AuditList struct {
	Result []AuditEntry `json:"Result"`
	Pages  Pages        `json:"Pages"`
}

// ViewAudit returns an entry for clients.
func ViewAudit(e *auditlog.Entry) AuditEntry {
	return AuditEntry{Number: e.No, At: Time{Time: time.UnixMilli(e.AtMs)}, Who: e.Who, From: e.From, Action: e.Action,
		Resource: e.Resource, Before: e.Before, After: e.After, Hash: hex.EncodeToString(e.Hash[:])}
}

// Entry is the inverse of ViewAudit.
func (v *AuditEntry) Entry() (e auditlog.Entry, err error) {
	e = auditlog.Entry{No: v.Number, AtMs: v.At.UnixMilli(), Who: v.Who, From: v.From, Action: v.Action,
		Resource: v.Resource, Before: v.Before, After: v.After}
	hash, err := hex.DecodeString(v.Hash)
	if err != nil || len(hash) != auditlog.HashSize {
		return e, fmt.Errorf("entry %d has no hash", e.No)
	}
	copy(e.Hash[:], hash)
	return e, nil
}
