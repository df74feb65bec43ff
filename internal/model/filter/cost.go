package filter

import (
	"fmt"
	"regexp"
	"sync"

	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// costs charges the calls of an evaluation by what they read and make. The costs of the library do
// not fit here, because they are those of the types that an expression declares, and those of a
// payload are known at the evaluation only.
type costs struct{}

// CallCost implements cost.ActualCostEstimator. It is asked after the call, so one call may cost
// more than the rest of the evaluation: what it takes is linear in the payload.
func (costs) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	units := 1 + textUnits(result)
	for _, a := range args {
		units += textUnits(a)
	}
	switch function {
	case operators.Equals, operators.NotEquals, operators.Add:
		for _, a := range args {
			units += nodes(a, maxCost)
		}
	case operators.In, operators.OldIn:
		if _, list := args[1].(traits.Lister); list {
			units += nodes(args[1], maxCost)
		}
	case "matches":
		units += textUnits(args[0]) * textUnits(args[1])
	}
	return &units
}

// textUnits is what reading a text costs.
func textUnits(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v)/10 + 1)
	case types.Bytes:
		return uint64(len(v)/10 + 1)
	}
	return 0
}

// nodes counts the values of a list or a map with all that is in it, and stops at most. A value that
// is neither counts nothing.
func nodes(v any, most uint64) (n uint64) {
	switch v := v.(type) {
	case ref.Val:
		switch v.(type) {
		case traits.Lister, traits.Mapper:
			return nodes(v.Value(), most)
		}
	case []any:
		for _, e := range v {
			if n += 1 + nodes(e, most-min(n, most)); n >= most {
				break
			}
		}
	case []ref.Val:
		for _, e := range v {
			if n += 1 + nodes(e, most-min(n, most)); n >= most {
				break
			}
		}
	case map[string]any:
		for _, e := range v {
			if n += 1 + nodes(e, most-min(n, most)); n >= most {
				break
			}
		}
	case map[ref.Val]ref.Val:
		for _, e := range v {
			if n += 1 + nodes(e, most-min(n, most)); n >= most {
				break
			}
		}
	case string:
		return uint64(len(v) / 10)
	}
	return n
}

// sizes bounds from below what an expression costs. Nothing is known about a message, so a loop
// over its members may end at once.
type sizes struct{}

func (sizes) EstimateSize(cost.AstNode) *cost.SizeEstimate { return nil }

func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// mostSteps bounds one search: the bytes of the text times the size of the expression.
const mostSteps = 4_000_000

const errMatches = "the text is too long for matches"

// A pattern is a compiled regular expression.
type pattern struct {
	re   *regexp.Regexp
	size int // instructions
}

var patterns = struct {
	sync.RWMutex
	byText map[string]pattern
}{byText: map[string]pattern{}}

// compiled returns a regular expression within the bounds.
func compiled(text string) (pattern, error) {
	patterns.RLock()
	p, known := patterns.byText[text]
	patterns.RUnlock()
	if known {
		return p, nil
	}
	if len(text) > maxPattern {
		return p, fmt.Errorf("a regular expression has at most %d bytes", maxPattern)
	}
	var err error
	if p.size, err = types.RegexProgramSize(text); err != nil {
		return p, fmt.Errorf("the regular expression is wrong: %w", err)
	}
	if p.size > maxRegexp {
		return p, fmt.Errorf("the regular expression is too large")
	}
	if p.re, err = regexp.Compile(text); err != nil {
		return p, fmt.Errorf("the regular expression is wrong: %w", err)
	}
	patterns.Lock()
	defer patterns.Unlock()
	if len(patterns.byText) >= maxCached {
		clear(patterns.byText)
	}
	patterns.byText[text] = p
	return p, nil
}

// matches is the function of that name, in bounded time.
func matches(text, expression ref.Val) ref.Val {
	s, ok := text.(types.String)
	e, ok2 := expression.(types.String)
	if !ok || !ok2 {
		return types.MaybeNoSuchOverloadErr(text)
	}
	p, err := compiled(string(e))
	if err != nil {
		return types.WrapErr(err)
	}
	if len(s)*p.size > mostSteps {
		return types.NewErr(errMatches)
	}
	return types.Bool(p.re.MatchString(string(s)))
}
