package nats

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// payTimeout bounds the write of a word that the server is owed. writeTimeout and leastRate bound that of a message:
// a server that reads less ends the connection, whatever it says meanwhile.
const (
	payTimeout   = 5 * time.Second
	writeTimeout = 30 * time.Second
	leastRate    = 32 << 10 // bytes a second
)

// A link is a connection that is logged in. Its methods may be called at once, read by one goroutine.
type link struct {
	raw    net.Conn // closed at the end
	conn   net.Conn // raw, or TLS over it
	frames *frames
	rested func() // called when no message waits any more
	inbox  string // with a full stop and a number after it, the subject of an acknowledgement

	mostPayload atomic.Int64  // of the server, bytes of headers and payload
	retired     atomic.Bool   // it takes no more messages
	turn        chan struct{} // has an element while a goroutine writes
	w           *bufio.Writer // of whoever has the turn
	owedPing    atomic.Bool
	owedPong    atomic.Bool

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*flight
	used    time.Time     // when the last message was begun
	err     error         // why it has ended
	ended   chan struct{} // closed with err
}

// A flight is a message that waits for its acknowledgement.
type flight struct {
	subject string
	said    chan answer // with room for one
	strange atomic.Bool // an answer came that is no acknowledgement
}

// publish sends a message and waits for its acknowledgement, until ctx ends. sent says that bytes of the message
// may have reached the server. m is not used after it has returned.
func (l *link) publish(ctx context.Context, deadline time.Time, m *message) (said answer, sent bool, err error) {
	f := &flight{subject: m.subject, said: make(chan answer, 1)}
	no, err := l.enter(f)
	if err != nil {
		return answer{}, false, err
	}
	defer l.leave(no)
	reply := l.inbox + "." + strconv.FormatUint(no, 10)
	if sent, err = l.write(ctx, deadline, m, reply); err != nil {
		return answer{}, sent, err
	}
	select {
	case said = <-f.said:
		return said, true, nil
	case <-l.ended:
		err = l.err
	case <-ctx.Done():
		err = ctx.Err()
		if f.strange.Load() {
			err = errStrange
		}
	}
	select {
	case said = <-f.said: // it came at the same time
		return said, true, nil
	default:
		return answer{}, true, err
	}
}

// enter lets a message wait for its acknowledgement under a number.
func (l *link) enter(f *flight) (no uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	l.last++
	l.waiting[l.last] = f
	l.used = time.Now()
	return l.last, nil
}

func (l *link) leave(no uint64) {
	l.mu.Lock()
	delete(l.waiting, no)
	rests := len(l.waiting) == 0
	l.mu.Unlock()
	if rests && l.retired.Load() {
		l.endUnused()
	} else if rests {
		l.rested()
	}
}

// write writes a message when it is its turn. A server that does not read delays the messages of a connection
// until their deadlines, and no longer: after that of the message under way, or writeTimeout, the connection ends.
func (l *link) write(ctx context.Context, deadline time.Time, m *message, reply string) (sent bool, err error) {
	select {
	case l.turn <- struct{}{}:
	case <-l.ended:
		return false, l.err
	case <-ctx.Done():
		return false, errUnread
	}
	defer l.release()
	if !time.Now().Before(deadline) {
		return false, errUnread
	}
	within := writeTimeout + time.Duration(m.size()/leastRate)*time.Second
	if stalled := time.Now().Add(within); stalled.Before(deadline) {
		deadline = stalled
	}
	if err = l.conn.SetWriteDeadline(deadline); err == nil {
		err = m.write(l.w, reply)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errUnread
	}
	if err != nil {
		l.end(err)
		err = l.err // why the connection ended first
	}
	return true, err
}

// release ends a turn to write. What the reader owes the server goes first. An attempt does not wait for that.
func (l *link) release() {
	if l.owes() {
		go func() {
			l.pay()
			l.release()
		}()
		return
	}
	<-l.turn
	if l.owes() {
		l.settle()
	}
}

// owe writes a word to the server soon, or after the message under way: the reader waits for no writer.
func (l *link) owe(debt *atomic.Bool) {
	debt.Store(true)
	l.settle()
}

// settle pays, unless somebody has the turn, who pays then.
func (l *link) settle() {
	select {
	case l.turn <- struct{}{}:
		l.release()
	default:
	}
}

func (l *link) owes() bool { return l.owedPing.Load() || l.owedPong.Load() }

func (l *link) pay() {
	var words string
	if l.owedPong.Swap(false) {
		words = "PONG\r\n"
	}
	if l.owedPing.Swap(false) {
		words += "PING\r\n"
	}
	if words == "" {
		return
	}
	_ = l.conn.SetWriteDeadline(time.Now().Add(payTimeout))
	_, err := l.w.WriteString(words)
	if err == nil {
		err = l.w.Flush()
	}
	if err != nil {
		l.end(err)
	}
}

// read handles what the server says until the connection ends, and returns why. idle is the time without a
// message after which it does, quiet that of Options.
func (l *link) read(idle, quiet time.Duration) error {
	asked := false
	for {
		err := l.frames.wait(min(quiet, idle))
		used, rests := l.rests()
		if rests && (time.Since(used) >= idle || l.retired.Load()) && l.endUnused() {
			return errIdle
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if asked {
				return errSilent
			}
			if asked = !rests; asked {
				l.owe(&l.owedPing)
			}
			continue
		case err != nil:
			return err
		}
		f, err := l.frames.next()
		if err != nil {
			return err
		}
		asked = false
		if err := l.handle(f); err != nil {
			return err
		}
	}
}

// handle does what a frame asks for. After an error the connection is of no use.
func (l *link) handle(f frame) error {
	switch f.verb {
	case "MSG", "HMSG":
		l.answered(f)
	case "PING":
		l.owe(&l.owedPong)
	case "INFO":
		said, err := infoOf(f)
		if err != nil {
			return err
		}
		l.learn(said)
	case "-ERR":
		if subject, ok := deniedPublish(f.text); ok {
			l.denied(subject, f.text)
			return nil
		}
		return &refusal{f.text}
	case "PONG", "+OK":
	default:
		return errNotNATS
	}
	return nil
}

// answered gives an answer to the message that waits for it.
func (l *link) answered(f frame) {
	number, ok := strings.CutPrefix(f.text, l.inbox+".")
	no, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return
	}
	l.mu.Lock()
	to := l.waiting[no]
	l.mu.Unlock()
	if to == nil {
		return // its attempt is over
	}
	said, ok := answerOf(f)
	if !ok {
		to.strange.Store(true)
		return
	}
	to.tell(said)
}

// denied tells the messages to a subject that the server does not let them through.
func (l *link) denied(subject, words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.waiting {
		if strings.EqualFold(f.subject, subject) {
			f.tell(answer{status: 403, words: words})
		}
	}
}

func (f *flight) tell(said answer) {
	select {
	case f.said <- said:
	default: // there is one already
	}
}

// end closes the connection. The messages that wait get err.
func (l *link) end(err error) {
	if err == nil {
		err = errEnded
	}
	l.mu.Lock()
	l.over(err)
	l.mu.Unlock()
	_ = l.raw.Close()
}

// endUnused closes the connection unless a message waits, and reports whether it did.
func (l *link) endUnused() bool {
	l.mu.Lock()
	unused := len(l.waiting) == 0
	if unused {
		l.over(errIdle)
	}
	l.mu.Unlock()
	if unused {
		_ = l.raw.Close()
	}
	return unused
}

// over needs mu.
func (l *link) over(err error) {
	if l.err == nil {
		l.err = err
		close(l.ended)
	}
}

// takes reports whether the connection takes messages.
func (l *link) takes() bool {
	select {
	case <-l.ended:
		return false
	default:
		return !l.retired.Load()
	}
}

// rests returns when a message was last begun, and whether none waits.
func (l *link) rests() (used time.Time, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, len(l.waiting) == 0
}

// fresh reports whether the connection was made just now, so its first message is about to be sent.
func (l *link) fresh() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last == 0 && time.Since(l.used) < payTimeout
}
