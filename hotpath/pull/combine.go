package pull

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/tool/guard"
	"github.com/penstock-broker/penstock/internal/tool/intake"
)

// combineMost bounds the questions in one combined call.
const combineMost = 100

// errShort reports a combined call that returned fewer answers than questions.
var errShort = errors.New("hotpath: answers are missing")

// A combiner merges questions about one consumer into one call. Questions that arrive during a call
// share the next one. Workers that each move one job then cost one Redis call per round instead of
// one call each. No timer delays a question: the first one is sent at once.
type combiner[Q, A any] struct {
	// call answers the questions in their order.
	call func(ctx context.Context, consumer uint32, questions []Q) ([]A, error)

	mu      sync.Mutex
	waiting map[uint32][]asked[Q, A] // by consumer; present while a goroutine serves it
}

// An asked is a question with the channel for its answer.
type asked[Q, A any] struct {
	question Q
	answer   chan answered[A] // capacity 1
}

type answered[A any] struct {
	answers []A // one
	err     error
}

// Ask returns the answer to the question. If ctx ends first, the effect of the question is unknown.
func (c *combiner[Q, A]) Ask(ctx context.Context, consumer uint32, question Q) (answer A, err error) {
	answers, err := c.ask(ctx, consumer, question)
	if err == nil {
		answer = answers[0]
	}
	return answer, err
}

// ask is Ask for callers that go on with a slice.
func (c *combiner[Q, A]) ask(ctx context.Context, consumer uint32, question Q) ([]A, error) {
	a := asked[Q, A]{question, make(chan answered[A], 1)}
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = map[uint32][]asked[Q, A]{}
	}
	queue, served := c.waiting[consumer]
	c.waiting[consumer] = append(queue, a)
	c.mu.Unlock()
	if !served {
		go c.serve(consumer)
	}
	select {
	case got := <-a.answer:
		return got.answers, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve makes calls until no question waits.
func (c *combiner[Q, A]) serve(consumer uint32) {
	defer guard.Watch("combiner")
	runtime.Gosched() // let requests that arrived together share a call
	for {
		c.mu.Lock()
		queue := c.waiting[consumer]
		if len(queue) == 0 {
			delete(c.waiting, consumer)
			c.mu.Unlock()
			return
		}
		n := min(len(queue), combineMost)
		c.waiting[consumer] = queue[n:]
		c.mu.Unlock()
		c.answer(consumer, queue[:n:n])
	}
}

func (c *combiner[Q, A]) answer(consumer uint32, batch []asked[Q, A]) {
	questions := make([]Q, len(batch))
	for i := range batch {
		questions[i] = batch[i].question
	}
	ctx, cancel := context.WithTimeout(context.Background(), intake.AnswerWithin)
	defer cancel()
	var answers []A
	err := guard.Do("combined call", func() (err error) {
		answers, err = c.call(ctx, consumer, questions)
		return err
	})
	if errors.Is(err, guard.ErrPanic) {
		err = problem.ErrInternal.Because(err)
	}
	if err == nil && len(answers) != len(batch) {
		err = errShort
	}
	for i := range batch {
		got := answered[A]{err: err}
		if err == nil {
			got.answers = answers[i : i+1 : i+1]
		}
		batch[i].answer <- got
	}
}
