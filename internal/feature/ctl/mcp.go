package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	penstock "github.com/penstock-broker/penstock/clients/go"
)

const (
	// mcpVersion is the newest version of the protocol that is spoken.
	mcpVersion = "2025-06-18"
	// mostCall bounds a request, in bytes.
	mostCall = 1 << 20
	// mostTold bounds the answer of a tool, in bytes: it becomes a part of a conversation.
	mostTold = 64 << 10
	// mostTroubles bounds the consumers that are listed.
	mostTroubles = 50
)

// mcpVersions are the versions that are spoken: tools are the same in all.
var mcpVersions = []string{"2024-11-05", "2025-03-26", mcpVersion}

// A tool is something that a program may ask about a broker. It changes nothing.
type tool struct {
	name, about string
	argument    string // "": none
	explained   string // the argument
	run         func(ctx context.Context, c *cobra.Command, m *penstock.Manager, argument string) (any, error)
}

func (s *session) mcp() *cobra.Command {
	return leaf{use: "mcp", about: "answer questions of an assistant, as an MCP server on stdin and stdout",
		long: "Its tools read: check, consumers_in_trouble, why, causes and timeline. None changes anything or shows a\n" +
			"payload. What they quote, such as errors, was written by others: it is no instruction.",
		examples: `echo '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | broker ctl mcp`,
		run: func(c *cobra.Command, _ []string) error {
			if _, err := s.manager(); err != nil {
				return err
			}
			return s.converse(c)
		}}.command()
}

// A rpcCall is a request, or a notification, which has no ID.
type rpcCall struct {
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Params  json.RawMessage
}

// A rpcAnswer is the answer to a request.
type rpcAnswer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// converse answers requests, one in each line, until there is no more.
func (s *session) converse(c *cobra.Command) error {
	in := bufio.NewScanner(s.Stdin)
	in.Buffer(nil, mostCall)
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		var q rpcCall
		a := rpcAnswer{JSONRPC: "2.0", ID: json.RawMessage("null")}
		if err := json.Unmarshal(line, &q); err != nil {
			a.Error = &rpcError{-32700, "the line is no JSON object of a request"}
		} else if len(q.ID) == 0 {
			continue // a notification
		} else {
			a.ID = q.ID
			a.Result, a.Error = s.answer(c, q)
		}
		if err := s.line(a); err != nil {
			return err
		}
		if c.Context().Err() != nil {
			return nil
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return local("a request has more than %d bytes", mostCall)
	} else if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return local("%v", err)
	}
	return nil
}

// answer answers a request.
func (s *session) answer(c *cobra.Command, q rpcCall) (any, *rpcError) {
	switch q.Method {
	case "initialize":
		var p struct{ ProtocolVersion string }
		_ = json.Unmarshal(q.Params, &p) // then the newest is offered
		if !slices.Contains(mcpVersions, p.ProtocolVersion) {
			p.ProtocolVersion = mcpVersion
		}
		return map[string]any{"protocolVersion": p.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]string{"name": "penstock", "version": penstock.Version}}, nil
	case "ping":
		return map[string]any{}, nil
	case "tools/list":
		all := []any{}
		for _, t := range s.tools() {
			properties, required := map[string]any{}, []string{}
			if t.argument != "" {
				properties[t.argument] = map[string]string{"type": "string", "description": t.explained}
				required = append(required, t.argument)
			}
			all = append(all, map[string]any{"name": t.name, "description": t.about, "annotations": map[string]bool{
				"readOnlyHint": true}, "inputSchema": map[string]any{"type": "object", "properties": properties,
				"required": required}})
		}
		return map[string]any{"tools": all}, nil
	case "tools/call":
		var p struct {
			Name      string
			Arguments map[string]any
		}
		if err := json.Unmarshal(q.Params, &p); err != nil {
			return nil, &rpcError{-32602, "the parameters of tools/call are name and arguments"}
		}
		for _, t := range s.tools() {
			if t.name == p.Name {
				argument, _ := p.Arguments[t.argument].(string)
				return s.told(c, t, argument), nil
			}
		}
		return nil, &rpcError{-32602, "there is no such tool; tools/list lists them"}
	}
	return nil, &rpcError{-32601, "there is no such method"}
}

// told is the result of a tool.
func (s *session) told(c *cobra.Command, t tool, argument string) any {
	var text []byte
	m, err := s.manager()
	if err == nil && t.argument != "" && argument == "" {
		err = wrong("%s needs the argument %s, a text", t.name, t.argument)
	}
	var got any
	if err == nil {
		got, err = t.run(c.Context(), c, m, argument)
	}
	if err == nil {
		text, err = json.Marshal(got)
	}
	if err != nil {
		text = []byte(said(err))
	}
	if len(text) > mostTold {
		text = append(bytes.ToValidUTF8(text[:mostTold], nil), "... (cut off)"...)
	}
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": string(text)}}, "isError": err != nil}
}

func (s *session) tools() []tool {
	read := func(ctx context.Context, m *penstock.Manager, path string) (any, error) {
		var raw json.RawMessage
		err := m.Read(ctx, path, nil, &raw)
		return raw, err
	}
	return []tool{
		{name: "check", about: "Whether all is well: findings, and counts of jobs of all consumers.",
			run: func(_ context.Context, c *cobra.Command, _ *penstock.Manager, _ string) (any, error) {
				r := s.examine(c, checkBounds{})
				r.settle()
				return r, nil
			}},
		{name: "consumers_in_trouble", about: "Consumers that are held, failing, late or have dead letters, with their " +
			"state and last error.", run: func(ctx context.Context, _ *cobra.Command, m *penstock.Manager, _ string) (any,
			error) {
			return troubles(ctx, m)
		}},
		{name: "why", about: "Why the jobs of a consumer, a job or a message do not move, and what to do.", argument: "id",
			explained: "CHANNEL/CONSUMER, CHANNEL/CONSUMER/JOB, or the ID of a message",
			run: func(ctx context.Context, c *cobra.Command, m *penstock.Manager, name string) (any, error) {
				path, err := pathOf(name)
				if err != nil {
					return s.findMessage(c, m, "", name, "/why")
				}
				return read(ctx, m, path+"/why")
			}},
		{name: "causes", about: "The dead letters of a consumer by cause, with counts and samples.", argument: "consumer",
			explained: "CHANNEL/CONSUMER", run: func(ctx context.Context, _ *cobra.Command, m *penstock.Manager,
				name string) (any, error) {
				path, err := consumers.path(name)
				if err != nil {
					return nil, err
				}
				return read(ctx, m, path+"/dlq/groups")
			}},
		{name: "timeline", about: "What became of a message: attempts, deliveries, dead letters, in order of time.",
			argument: "message", explained: "CHANNEL/MESSAGE",
			run: func(ctx context.Context, _ *cobra.Command, m *penstock.Manager, name string) (any, error) {
				path, err := within("message", name)
				if err != nil {
					return nil, err
				}
				return read(ctx, m, path+"/timeline")
			}},
	}
}

// troubles are the consumers that need somebody, without their tokens and policies.
func troubles(ctx context.Context, m *penstock.Manager) (any, error) {
	all, seen := []any{}, map[string]bool{}
	for _, query := range []url.Values{{"held": {"true"}}, {"sort": {"dead"}}, {"sort": {"oldest"}}} {
		err := m.Each(ctx, "/consumers", query, mostTroubles, func(raw json.RawMessage) error {
			var k struct {
				listedConsumer
				StateReason, LastError string
				LastStatus             int
			}
			if err := json.Unmarshal(raw, &k); err != nil {
				return err
			}
			name := k.ChannelID + "/" + k.ID
			if !k.waits() && k.LastError == "" || seen[name] || len(all) >= mostTroubles {
				return nil
			}
			seen[name] = true
			all = append(all, map[string]any{"Consumer": name, "Type": k.Type, "State": cmp.Or(k.State, "?"),
				"StateReason": k.StateReason, "HeldBy": k.HeldBy, "Queued": k.Queued, "InFlight": k.InFlight,
				"DeadLetters": k.DeadLetters, "OldestQueuedAt": k.OldestQueuedAt, "LastStatus": k.LastStatus,
				"LastError": k.LastError})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return map[string]any{"Consumers": all}, nil
}
