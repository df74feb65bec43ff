package durable

import (
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/ident"
)

func TestColumnsAreTheTextOfEachKindOfStatement(t *testing.T) {
	var a, b int
	c := columns{{"a", &a}, {"b", &b}, {"LENGTH(c)", &b}}
	require.Equal(t, "\n    a,\n    b,\n    LENGTH(c)", c.names())
	require.Equal(t, "\n    b = ?,\n    a = ?", c.only("b", "a").sets())
	require.Equal(t, "\nINSERT INTO t (\n    a,\n    b\n)\nVALUES (?, ?)", c.only("a", "b").insert("t"))
	require.Equal(t, "\nINSERT INTO t (\n    a,\n    b\n)\nVALUES (?, ?),\n(?, ?)", rows(c.only("a", "b").inserts("t"), 2))
	require.Equal(t, []any{&a, &b, &b}, c.fields())
	require.Equal(t, "\n    x.a", c.only("a").of("x").names())
	require.Equal(t, "a", c[0].name, "another list stays as it is")
	require.PanicsWithValue(t, "durable: no column d", func() { c.only("a", "d") })
}

// Each kind of field is stored and read again, as another value than its zero value and as that.
func TestAFieldIsReadAsItWasStored(t *testing.T) {
	type row struct {
		id, other ident.ID
		text, key string
		note      string
		blob      []byte
		owner     [4]byte
		at        time.Time
		set       Positions
	}
	columnsOf := func(r *row) columns {
		return columns{
			{"id", asID{&r.id}}, {"other", asOptionalID{&r.other}}, {"text", asBytes{&r.text}}, {"key", asOptional{&r.key}},
			{"note", asNote{&r.note}}, {"blob", asBlob{&r.blob}}, {"owner", asFixed(r.owner[:])}, {"at", asMillis{&r.at}},
			{"set", asPositions{&r.set}},
		}
	}
	for _, stored := range []row{
		{blob: []byte{}, at: fromMillis(0)},
		{id: ident.Max(), other: ident.Max(), text: "t", key: "k", note: "n", blob: []byte("b"), owner: [4]byte{1, 2, 3, 4},
			at: fromMillis(5), set: NoPositions},
	} {
		var read row
		to := columnsOf(&read)
		for i, from := range columnsOf(&stored) {
			value, err := from.field.(driver.Valuer).Value()
			require.NoError(t, err)
			require.True(t, driver.IsValue(value), from.name)
			require.NoError(t, to[i].field.(sql.Scanner).Scan(value), from.name)
		}
		require.Equal(t, stored, read)
	}
}

func TestAFieldRefusesAValueOfAnotherForm(t *testing.T) {
	var r struct {
		id    ident.ID
		text  string
		blob  []byte
		owner [4]byte
		at    time.Time
	}
	for _, field := range []sql.Scanner{asID{&r.id}, asOptionalID{&r.id}} {
		require.Error(t, field.Scan([]byte("abc")))
		require.Error(t, field.Scan(int64(1)))
	}
	for _, field := range []sql.Scanner{asBytes{&r.text}, asBlob{&r.blob}, asFixed(r.owner[:])} {
		require.Error(t, field.Scan(int64(1)))
	}
	require.Error(t, asMillis{&r.at}.Scan([]byte("abc")))
}
