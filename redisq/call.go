package redisq

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// maxRounds bounds the repetitions of a call for which Redis did not know the script or
// the epoch. Each round removes the cause of its repetition, so a call uses up all
// rounds only when Redis is emptied again and again.
const maxRounds = 6

// maxPipelineArgs bounds the arguments of one pipeline, so that a fan-out to thousands
// of consumers stays far below the read timeout.
const maxPipelineArgs = 20_000

// ErrLost means that Redis has lost the state that a call is for.
var ErrLost = errors.New("state in Redis was lost")

// errReplaced means that Redis lost its state during every round.
var errReplaced = errors.New("state in Redis is being replaced repeatedly")

// A call is one script for one consumer.
type call struct {
	consumer uint32
	script   *script
	args     []any  // without the epoch
	pinned   string // the only epoch that the call is valid for; empty: the current one

	known string // epoch of the last send
	eval  bool   // Redis does not know the digest
	reply []any
	err   error
	done  bool
}

// onceCmd is a command that the client must not retry: after a lost reply, a repeated
// claim would lease a second batch.
type onceCmd struct{ *redis.Cmd }

// NoRetry disables the retries of the client.
func (onceCmd) NoRetry() bool { return true }

// cmd builds the command for the next round.
func (q *Queue) cmd(ctx context.Context, c *call) onceCmd {
	if c.known = c.pinned; c.pinned == "" {
		c.known = q.Epoch(c.consumer)
	}
	name, code := "evalsha", c.script.hash
	if c.eval {
		name, code = "eval", c.script.text
	}
	keys := q.keys(c.consumer)
	args := make([]any, 0, 4+len(keys)+len(c.args))
	args = append(args, name, code, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(append(args, c.known), c.args...)
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return onceCmd{cmd}
}

// run runs one script and returns its reply, without the epoch.
func (q *Queue) run(ctx context.Context, consumer uint32, s *script, args ...any) ([]any, error) {
	c := &call{consumer: consumer, script: s, args: args}
	q.runAll(ctx, []*call{c})
	return c.reply, c.err
}

// runAll runs the calls in pipelines. Each call gets its own reply or error. Calls for
// the same consumer run in their order.
func (q *Queue) runAll(ctx context.Context, calls []*call) {
	pending := calls
	for range maxRounds {
		q.send(ctx, pending)
		q.adoptAll(ctx, pending)
		left := pending[:0:0]
		for _, c := range pending {
			if !c.done {
				left = append(left, c)
			}
		}
		if pending = left; len(pending) == 0 {
			return
		}
	}
	for _, c := range pending {
		c.err = failedTo(c.script.name, errReplaced)
	}
}

// send sends each call once and stores the replies.
func (q *Queue) send(ctx context.Context, calls []*call) {
	if len(calls) == 1 {
		cmd := q.cmd(ctx, calls[0])
		_ = q.client.Process(ctx, cmd)
		calls[0].take(cmd.Cmd)
		return
	}
	for len(calls) > 0 {
		pipe := q.client.Pipeline()
		var cmds []onceCmd
		for args := 0; len(cmds) < len(calls) && args < maxPipelineArgs; {
			c := calls[len(cmds)]
			cmd := q.cmd(ctx, c)
			_ = pipe.Process(ctx, cmd)
			cmds = append(cmds, cmd)
			args += len(cmd.Args())
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i, cmd := range cmds {
			calls[i].take(cmd.Cmd)
		}
		calls = calls[len(cmds):]
	}
}

// take reads the reply of one round. A reply or error ends the call; an unknown digest
// or epoch needs another round.
func (c *call) take(cmd *redis.Cmd) {
	v, err := cmd.Result()
	if err != nil {
		if !c.eval && redis.HasErrorPrefix(err, "NOSCRIPT") {
			c.eval = true
			return
		}
		c.fail(err)
		return
	}
	c.reply, _ = v.([]any)
	if len(c.reply) == 2 && c.reply[0] == "STALE" {
		return
	}
	c.done = true
	if c.reply == nil {
		c.fail(fmt.Errorf("unexpected reply %T", v))
	}
}

func (c *call) fail(err error) {
	c.done, c.reply = true, nil
	c.err = failedTo(c.script.name, err)
}

// adoptAll adopts the epochs that stale calls received. A consumer without an epoch
// gets a new one.
func (q *Queue) adoptAll(ctx context.Context, calls []*call) {
	var empty []*call // the first stale call of each consumer without an epoch
	pipe := q.client.Pipeline()
	var cmds []onceCmd
	seen := map[uint32]bool{}
	for _, c := range calls {
		if c.done || len(c.reply) == 0 || seen[c.consumer] {
			continue
		}
		seen[c.consumer] = true
		if current, _ := c.reply[1].(string); current != "" {
			q.adopt(c.consumer, c.known, current)
			continue
		}
		args := []any{"eval", rebuildScript.text, len(keyNames)}
		for _, key := range q.Keys(c.consumer) {
			args = append(args, key)
		}
		cmd := redis.NewCmd(ctx, append(args, newEpoch(), q.outside(c.consumer))...)
		cmd.SetFirstKeyPos(3)
		_ = pipe.Process(ctx, onceCmd{cmd})
		cmds = append(cmds, onceCmd{cmd})
		empty = append(empty, c)
	}
	failed := map[uint32]error{}
	if len(cmds) > 0 {
		_, _ = pipe.Exec(ctx)
	}
	for i, cmd := range cmds {
		winner, err := cmd.Text()
		if err != nil {
			failed[empty[i].consumer] = err
			continue
		}
		q.adopt(empty[i].consumer, empty[i].known, winner)
	}
	for _, c := range calls {
		if c.done {
			continue
		}
		if err := failed[c.consumer]; err != nil {
			c.fail(err)
		}
		if !c.done && c.pinned != "" && len(c.reply) > 0 {
			c.fail(ErrLost)
		}
		if !c.done {
			c.reply = nil
		}
	}
}

// A failure is an error of Redis with the name of the call. It is ErrFailed.
type failure struct {
	asked string
	cause error
}

func failedTo(asked string, cause error) error { return &failure{asked, cause} }

func (f *failure) Error() string   { return "redisq: " + f.asked + ": " + f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{ErrFailed, f.cause} }
