package filter

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/stdlib"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// Numbers of JSON are doubles, except integers that a double may not have exactly: those are int or
// uint, so that comparisons tell them from their neighbours. How the integer is written does not
// matter. Arithmetic takes both kinds together, as it takes two doubles.

// exactBelow is where doubles begin to leave out integers, and largest where uint ends.
const (
	exactBelow = 1 << 53
	largest    = 1 << 64
	// longestNumber bounds the text of a number that is read exactly, bytes: a longer one is a double.
	longestNumber = 64
)

// longNumbers reports whether a text may have a number that a double does not have exactly: with 16
// digits, or with an exponent.
func longNumbers(text []byte) bool {
	digits := 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			if digits++; digits > 15 {
				return true
			}
		case c == '.':
		case c|0x20 == 'e' && digits > 0:
			return true
		default:
			digits = 0
		}
	}
	return false
}

// exact replaces the numbers of a value that was decoded with json.Decoder.UseNumber.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = exact(v[name])
		}
	}
	return v
}

// number returns an int64 or a uint64 for an integer that a double may not have exactly, and a float64
// for any other number. One that is too large is nil.
func number(text string) any {
	f, err := json.Number(text).Float64()
	if err != nil {
		return nil
	}
	if size := math.Abs(f); size < exactBelow || size > largest || len(text) > longestNumber {
		return f
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || !r.IsInt() {
		return f
	}
	switch n := r.Num(); {
	case n.IsInt64() && (n.Int64() >= exactBelow || n.Int64() <= -exactBelow):
		return n.Int64()
	case n.IsUint64() && n.Uint64() >= exactBelow:
		return n.Uint64()
	}
	return f
}

// arithmetic are the operators that take an int and a double together.
var arithmetic = map[string]struct {
	trait int
	apply func(lhs, rhs ref.Val) ref.Val
}{
	operators.Add:      {traits.AdderType, func(l, r ref.Val) ref.Val { return l.(traits.Adder).Add(r) }},
	operators.Subtract: {traits.SubtractorType, func(l, r ref.Val) ref.Val { return l.(traits.Subtractor).Subtract(r) }},
	operators.Multiply: {traits.MultiplierType, func(l, r ref.Val) ref.Val { return l.(traits.Multiplier).Multiply(r) }},
	operators.Divide:   {traits.DividerType, func(l, r ref.Val) ref.Val { return l.(traits.Divider).Divide(r) }},
}

// library is the standard library with the functions of this package instead of its own.
func library() []cel.EnvOption {
	without := env.NewLibrarySubset().AddExcludedFunctions(env.NewFunction("matches"))
	var own []cel.EnvOption
	for _, f := range stdlib.Functions() {
		op, ok := arithmetic[f.Name()]
		if !ok {
			continue
		}
		without.AddExcludedFunctions(env.NewFunction(f.Name()))
		options := []cel.FunctionOpt{cel.SingletonBinaryBinding(func(l, r ref.Val) ref.Val {
			l, r = alike(l, r)
			return op.apply(l, r)
		}, op.trait)}
		for _, o := range f.OverloadDecls() {
			options = append(options, cel.Overload(o.ID(), o.ArgTypes(), o.ResultType()))
		}
		own = append(own, cel.Function(f.Name(), options...))
	}
	return slices.Concat([]cel.EnvOption{cel.StdLib(cel.StdLibSubset(without))}, own)
}

// alike makes two numbers of different types doubles.
func alike(l, r ref.Val) (ref.Val, ref.Val) {
	if l.Type() == r.Type() || !numeric(l) || !numeric(r) {
		return l, r
	}
	return l.ConvertToType(types.DoubleType), r.ConvertToType(types.DoubleType)
}

func numeric(v ref.Val) bool {
	switch v.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	}
	return false
}

// decode reads JSON. It takes more memory where a number may need it.
func decode(text []byte) (v any, ok bool) {
	if !longNumbers(text) {
		err := json.Unmarshal(text, &v)
		return v, err == nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if !json.Valid(text) || d.Decode(&v) != nil {
		return nil, false
	}
	return exact(v), true
}
