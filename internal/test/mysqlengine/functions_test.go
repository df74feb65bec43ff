package mysqlengine

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	engine "github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/expression/function"
	"github.com/dolthub/go-mysql-server/sql/types"
)

// functions are those of MySQL that this server has for some types only: GREATEST and LEAST neither for bytes nor
// for decimals, COALESCE only for bytes that are text.
type functions struct{}

// Function implements the provider of the server.
func (functions) Function(_ *engine.Context, name string) (engine.Function, bool) {
	switch strings.ToLower(name) {
	case "greatest":
		return engine.FunctionN{Name: "greatest", Fn: func(args ...engine.Expression) (engine.Expression, error) {
			return &chosen{name: "greatest", args: args, sign: 1}, nil
		}}, true
	case "least":
		return engine.FunctionN{Name: "least", Fn: func(args ...engine.Expression) (engine.Expression, error) {
			return &chosen{name: "least", args: args, sign: -1}, nil
		}}, true
	case "coalesce":
		return engine.FunctionN{Name: "coalesce", Fn: func(args ...engine.Expression) (engine.Expression, error) {
			if c := (&chosen{name: "coalesce", args: args}); c.Resolved() && c.Type() == types.LongBlob {
				return c, nil
			}
			return function.NewCoalesce(args...)
		}}, true
	}
	return nil, false
}

// chosen is one of its arguments: the greatest, the least, or the first that is not NULL.
type chosen struct {
	name string
	args []engine.Expression
	sign int // of a comparison with a better argument; 0: none is compared
}

// Resolved implements engine.Expression.
func (c *chosen) Resolved() bool {
	for _, arg := range c.args {
		if !arg.Resolved() {
			return false
		}
	}
	return true
}

func (c *chosen) String() string {
	names := make([]string, len(c.args))
	for i, arg := range c.args {
		names[i] = arg.String()
	}
	return c.name + "(" + strings.Join(names, ", ") + ")"
}

// Type implements engine.Expression: bytes where one argument is of bytes, then decimals, then integers.
func (c *chosen) Type() engine.Type {
	var out engine.Type = types.Int64
	for _, arg := range c.args {
		switch of := arg.Type(); {
		case types.IsText(of) && (c.sign != 0 || types.IsBinaryType(of)):
			return types.LongBlob
		case !types.IsInteger(of):
			out = types.Float64 // exact for milliseconds
		}
	}
	return out
}

// IsNullable implements engine.Expression.
func (c *chosen) IsNullable() bool { return true }

// Children implements engine.Expression.
func (c *chosen) Children() []engine.Expression { return c.args }

// WithChildren implements engine.Expression.
func (c *chosen) WithChildren(children ...engine.Expression) (engine.Expression, error) {
	return &chosen{c.name, children, c.sign}, nil
}

// Eval implements engine.Expression.
func (c *chosen) Eval(ctx *engine.Context, row engine.Row) (best any, err error) {
	of := c.Type()
	for _, arg := range c.args {
		value, err := arg.Eval(ctx, row)
		if err != nil {
			return nil, err
		}
		if value == nil && c.sign == 0 {
			continue
		}
		if value == nil {
			return nil, nil
		}
		if value, _, err = of.Convert(ctx, value); err != nil {
			return nil, err
		}
		if c.sign == 0 {
			return value, nil
		}
		if best == nil {
			best = value
			continue
		}
		order, err := compare(value, best)
		if err != nil {
			return nil, err
		}
		if order == c.sign {
			best = value
		}
	}
	return best, nil
}

func compare(a, b any) (int, error) {
	switch a := a.(type) {
	case int64:
		return cmp.Compare(a, b.(int64)), nil
	case float64:
		return cmp.Compare(a, b.(float64)), nil
	case []byte:
		return bytes.Compare(a, b.([]byte)), nil
	}
	return 0, fmt.Errorf("%T is not compared", a)
}
