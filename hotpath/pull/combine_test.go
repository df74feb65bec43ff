package pull

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/tool/intake"
)

func TestQuestionsThatComeDuringACallShareTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sizes := map[uint32][]int{}
		c := combiner[int, int]{call: func(_ context.Context, consumer uint32, questions []int) ([]int, error) {
			mu.Lock()
			sizes[consumer] = append(sizes[consumer], len(questions))
			mu.Unlock()
			time.Sleep(time.Millisecond)
			out := make([]int, len(questions))
			for i, q := range questions {
				out[i] = 2*q + int(consumer)
			}
			return out, nil
		}}
		var wg sync.WaitGroup
		ask := func(consumer uint32, from, to int) {
			for q := from; q < to; q++ {
				wg.Go(func() {
					got, err := c.Ask(t.Context(), consumer, q)
					require.NoError(t, err)
					require.Equal(t, 2*q+int(consumer), got)
				})
			}
		}
		ask(1, 0, 1)
		ask(2, 0, 1)
		synctest.Wait() // both calls are under way
		ask(1, 1, 2*combineMost+2)
		wg.Wait()
		require.Equal(t, map[uint32][]int{1: {1, combineMost, combineMost, 1}, 2: {1}}, sizes)
		synctest.Wait()
		require.Empty(t, c.waiting, "nothing is kept of consumers that are quiet")
	})
}

func TestACombinedCallThatFailsFailsEverybodyInIt(t *testing.T) {
	broken := errors.New("broken")
	answers := []int{}
	c := combiner[int, int]{call: func(context.Context, uint32, []int) ([]int, error) { return answers, broken }}
	_, err := c.Ask(t.Context(), 1, 1)
	require.ErrorIs(t, err, broken)
	broken = nil
	_, err = c.Ask(t.Context(), 1, 1)
	require.ErrorIs(t, err, errShort)
}

func TestAnAskerWhoseTimeIsUpLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := combiner[int, int]{call: func(ctx context.Context, _ uint32, _ []int) ([]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Ask(ctx, 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(intake.AnswerWithin)
		synctest.Wait()
	})
}
