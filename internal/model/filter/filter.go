package filter

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
)

const (
	// MaxBytes is the longest expression, and maxDepth the deepest nesting of one.
	MaxBytes = 2048
	maxDepth = 32
	// maxLoops is how deep loops over lists and maps may be nested.
	maxLoops = 3
	// maxCost bounds one evaluation, in units of about 100 ns.
	maxCost = 500_000
	// maxRegexp bounds the instructions of a regular expression, and maxPattern its text.
	maxRegexp  = 1000
	maxPattern = 256
)

// A Filter is a compiled expression. It is safe for concurrent use.
type Filter struct {
	program cel.Program
	payload bool // the expression reads the payload
}

// An Error says why a text is no filter, and where.
type Error struct {
	Line, Column int // from 1
	Problem      string
}

func (e *Error) Error() string {
	return fmt.Sprintf("must be a CEL expression: line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// cache has the filters that were compiled, by their texts; nil for a text that is no filter.
var cache = struct {
	sync.RWMutex
	byText map[string]*Filter
}{byText: map[string]*Filter{}}

// maxCached bounds the cache.
const maxCached = 4096

// Of returns the filter of a text that New takes, and nil for another text.
func Of(text string) *Filter {
	cache.RLock()
	f, known := cache.byText[text]
	cache.RUnlock()
	if known {
		return f
	}
	if f, _ = New(text); len(text) > MaxBytes {
		return nil
	}
	cache.Lock()
	defer cache.Unlock()
	if len(cache.byText) >= maxCached {
		clear(cache.byText)
	}
	cache.byText[text] = f
	return f
}

// New compiles an expression. Its error is an *Error or says what is wrong with the whole text.
func New(text string) (*Filter, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("must be at most %d bytes", MaxBytes)
	}
	e, err := environment()
	if err != nil {
		return nil, err
	}
	checked, issues := e.Compile(text)
	if issues.Err() != nil {
		return nil, wrong(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, &Error{1, 1, "the result is a " + t.String() + " and no bool"}
	}
	f := &Filter{}
	if err := f.inspect(checked); err != nil {
		return nil, err
	}
	estimate, err := e.EstimateCost(checked, sizes{})
	if err == nil && estimate.Min > maxCost {
		return nil, &Error{1, 1, "the expression costs too much, whatever the message is"}
	}
	// Not cel.OptOptimize: it replaces the function matches by one without bounds.
	f.program, err = e.Program(checked, cel.CostTracking(costs{}), cel.CostLimit(maxCost))
	if err != nil {
		return nil, &Error{1, 1, oneLine(err.Error())}
	}
	return f, nil
}

// environment returns the language, which is the same for all filters.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewCustomEnv(append(library(),
		cel.Function("matches",
			cel.Overload("filter_matches", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
				cel.BinaryBinding(matches)),
			cel.MemberOverload("filter_string_matches", []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType,
				cel.BinaryBinding(matches))),
		cel.Variable("payload", cel.DynType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("priority", cel.IntType),
		cel.Variable("contentType", cel.StringType),
		cel.Variable("producer", cel.StringType),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(maxDepth),
		cel.ParserExpressionSizeLimit(MaxBytes),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(),
			cel.ValidateComprehensionNestingLimit(maxLoops)),
	)...)
})

// wrong returns the first issue of a compilation.
func wrong(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return errors.New("must be a CEL expression: " + oneLine(issues.Err().Error()))
	}
	first := all[0]
	return &Error{max(first.Location.Line(), 1), max(first.Location.Column(), 0) + 1, oneLine(first.Message)}
}

// oneLine returns a text without line breaks, of bounded length.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 300)]
}

// inspect notes the variables of an expression, and checks its regular expressions.
func (f *Filter) inspect(checked *cel.Ast) error {
	native := checked.NativeRep()
	for _, e := range ast.MatchDescendants(ast.NavigateAST(native), ast.KindMatcher(ast.IdentKind)) {
		switch e.AsIdent() {
		case "payload":
			f.payload = true
		}
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(native), ast.FunctionMatcher("matches")) {
		args := e.AsCall().Args()
		pattern := args[len(args)-1]
		at := native.SourceInfo().GetStartLocation(pattern.ID())
		place := Error{Line: max(at.Line(), 1), Column: max(at.Column(), 0) + 1}
		text, literal := "", pattern.Kind() == ast.LiteralKind
		if literal {
			text, literal = pattern.AsLiteral().Value().(string)
		}
		if !literal {
			place.Problem = "the pattern of matches must be a literal string"
			return &place
		}
		if _, err := compiled(text); err != nil {
			place.Problem = oneLine(err.Error())
			return &place
		}
	}
	return nil
}

// Verdict is what a filter says about a message.
type Verdict uint8

// The verdicts. All but Match are no match. The last three are failures of the evaluation.
const (
	Match Verdict = iota
	NoMatch
	Missing  // the expression reads a member that the message does not have
	Failed   // such as a comparison of a text with a number
	TooLarge // the evaluation costs too much, or the payload is too large to be parsed
)

var verdictNames = [...]string{"match", "no_match", "missing_member", "error", "too_large"}

func (v Verdict) String() string { return verdictNames[v] }

// Decide evaluates the filter for a message.
func (f *Filter) Decide(m *Message) Verdict {
	out, _, err := f.program.Eval(m)
	switch {
	case f.payload && m.tooLarge:
		return TooLarge
	case err != nil:
		return failure(err)
	case out == types.True:
		return Match
	case out == types.False:
		return NoMatch
	}
	return Failed
}

// failure returns the verdict for an error of an evaluation.
func failure(err error) Verdict {
	text := err.Error()
	switch {
	case strings.Contains(text, "cost limit exceeded"), strings.Contains(text, errMatches):
		return TooLarge
	case strings.Contains(text, "no such key"), strings.Contains(text, "index out of bounds"):
		return Missing
	}
	return Failed
}
