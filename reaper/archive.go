package reaper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/catalogue"
	"github.com/penstock-broker/penstock/internal/model/ident"
	"github.com/penstock-broker/penstock/internal/tool/failpoint"
)

// With an archive the purger works in files instead of pages: it looks for messages that are over, writes
// them into a file of the archive, seals the file, and then removes exactly these messages, as far as they
// are over still. Nothing is removed unless the seal has succeeded. A crash between the two, or an end of
// the purge before it is through, makes the next round archive the rest again.

// archiveBytes is how much of payloads and headers one statement reads.
const archiveBytes = 4 << 20

// archivePages is how many pages of messages a file is made of at most, so that a scan over messages that stay
// goes on from there.
const archivePages = 200

// An ArchiveFile is a file of an archive that is being written.
type ArchiveFile interface {
	// Add writes a message, in the order of IDs, with the states of its jobs: consumers[i] has states[i].
	Add(m *durable.Message, producer string, consumers []string, states []durable.JobState) error
	// Full reports whether the file has enough.
	Full() bool
	// Seal returns nil when the archive has the file and it was read back.
	Seal(ctx context.Context) error
	// Abandon removes what is written of a file that is not sealed.
	Abandon()
}

// remove removes the messages of a page, or those of a file of the archive, that are over.
func (p *purger) remove(ctx context.Context, ch *catalogue.Channel, job durable.Purge) (durable.Purged, error) {
	if p.Archive == nil {
		start := time.Now()
		job.Limit = p.page(ch)
		page, err := p.purge(ctx, job)
		if err != nil {
			return page, err
		}
		p.note(ch, page, job.Through)
		return page, p.rest(ctx, ch, time.Since(start))
	}
	file, err := p.write(ctx, ch, &job)
	p.noteArchive(ctx, ch, file, err)
	if err != nil {
		return durable.Purged{}, fmt.Errorf("archive messages of channel %s: %w", ch.ID, err)
	}
	total := durable.Purged{Last: job.After}
	for job.After.Compare(job.Through) < 0 {
		start := time.Now()
		job.Limit = p.page(ch)
		page, err := p.purge(ctx, job)
		if err != nil {
			return total, err
		}
		job.After = page.Last
		total = durable.Purged{Last: page.Last, Removed: total.Removed + page.Removed, Kept: total.Kept + page.Kept}
		if err := p.rest(ctx, ch, time.Since(start)); err != nil {
			return total, err
		}
	}
	return total, nil
}

// write archives messages of a channel that are over, from job.After on. It sets job.Through to the last one
// that it looked at, and job.Only to those that are in the archive. messages is their number.
func (p *purger) write(ctx context.Context, ch *catalogue.Channel, job *durable.Purge) (messages int, err error) {
	w := archiving{purger: p, ch: ch, producers: map[uint32]string{}}
	defer func() {
		if w.file != nil {
			w.file.Abandon() // nothing, where it is sealed
		}
	}()
	job.Only = []ident.ID{}
	look := *job
	look.Only = nil
	for n := 0; n < archivePages && look.After.Compare(job.Through) < 0 && (w.file == nil || !w.file.Full()); n++ {
		start := time.Now()
		look.Limit = p.page(ch)
		ids, page, err := p.over(ctx, look)
		if err != nil {
			return 0, err
		}
		if err := w.add(ctx, ids); err != nil {
			return 0, err
		}
		look.After = page.Last
		if w.file != nil && w.file.Full() && len(w.added) > 0 {
			look.After = w.added[len(w.added)-1] // the others of the page are for the next file
		}
		p.note(ch, page, job.Through)
		if err := p.rest(ctx, ch, time.Since(start)); err != nil {
			return 0, err
		}
	}
	job.Through, job.Only = look.After, append(job.Only, w.added...)
	if w.file == nil {
		return 0, nil
	}
	if err := w.file.Seal(ctx); err != nil {
		return 0, errArchive{err}
	}
	failpoint.At(failpoint.AfterArchive)
	return len(w.added), nil
}

func (p *purger) over(ctx context.Context, job durable.Purge) ([]ident.ID, durable.Purged, error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	return p.Store.Over(ctx, job)
}

// An archiving writes one file.
type archiving struct {
	*purger
	ch        *catalogue.Channel
	file      ArchiveFile // nil before the first message
	producers map[uint32]string
	added     []ident.ID
}

// add writes messages with the states of their jobs.
func (w *archiving) add(ctx context.Context, ids []ident.ID) error {
	if len(ids) == 0 {
		return nil
	}
	var names []string
	var states []map[ident.ID]durable.JobState
	for _, k := range w.ch.Consumers {
		if k == nil || k.Deleted() {
			continue
		}
		of, err := w.Store.JobStates(ctx, k.No, ids)
		if err != nil {
			return err
		}
		names, states = append(names, k.ID), append(states, of)
	}
	if w.file == nil {
		var err error
		if w.file, err = w.Archive(ctx, w.ch.ID); err != nil {
			w.file = nil
			return errArchive{err}
		}
	}
	for len(ids) > 0 && !w.file.Full() {
		msgs, read, err := w.Store.MessagesUpTo(ctx, w.ch.No, ids, archiveBytes)
		if err != nil {
			return err
		}
		ids = ids[read:]
		for i := range msgs { // what is missing was removed by another broker
			of := make([]durable.JobState, len(states))
			for j := range states {
				of[j] = states[j][msgs[i].ID]
			}
			if err := w.file.Add(&msgs[i], w.producer(msgs[i].ProducerNo), names, of); err != nil {
				return errArchive{err}
			}
			w.added = append(w.added, msgs[i].ID)
		}
	}
	return nil
}

// producer returns the ID of a producer, "" where the copy does not have it.
func (w *archiving) producer(no uint32) string {
	id, known := w.producers[no]
	if !known {
		if p := w.Catalogue.ProducerByNo(no); p != nil {
			id = p.ID
		}
		w.producers[no] = id
	}
	return id
}

// An errArchive is a failure of the archive, not of the store.
type errArchive struct{ error }

func (e errArchive) Unwrap() error { return e.error }

// noteArchive counts what the archive has got, and opens or ends the alarm.
func (p *purger) noteArchive(ctx context.Context, ch *catalogue.Channel, messages int, failure error) {
	alert := durable.Alert{Event: durable.ArchiveFailing, ConsumerNo: ch.No, AtMs: p.Cluster.PastMs()}
	switch {
	case errors.As(failure, &errArchive{}) && ctx.Err() == nil:
		p.refused[ch.No] = true
		p.archiveFailing.Set(1)
		alert.Reason = "messages past their retention stay in the store, because the archive does not take them: " +
			failure.Error()
		if _, err := p.Store.OpenAlarm(ctx, alert); err != nil {
			p.Log.Warn("the alert of a failing archive is not stored", "channel", ch.ID, "error", err)
			return
		}
		p.unsaid[ch.No] = true
	case failure == nil && messages > 0:
		p.archived.Add(float64(messages))
		if said, known := p.unsaid[ch.No]; known && !said { // it is ended
			return
		}
		alert.Reason = fmt.Sprintf("the archive has taken a file with %d messages", messages)
		if _, err := p.Store.CloseAlarm(ctx, alert); err == nil {
			p.unsaid[ch.No] = false
		}
	}
}
