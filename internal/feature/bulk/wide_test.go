package bulk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
)

func TestARowHasABoundedNumberOfCells(t *testing.T) {
	var p recordParser
	wide := strings.Repeat("a,", mostColumns-1) + "a"
	cells, err := p.cells([]byte(wide))
	require.NoError(t, err)
	require.Len(t, cells, mostColumns)
	_, err = p.cells([]byte(wide + ",a"))
	require.ErrorIs(t, err, errManyCells)
	cells, err = p.cells([]byte(`"` + strings.Repeat(",", 2*mostColumns) + `",b`))
	require.NoError(t, err, "commas between quotes are no cells")
	require.Len(t, cells, 2)
	_, err = header([]byte(wide + ",a"))
	require.ErrorIs(t, err, errManyColumns)
}

func TestARowOfATemplateHasABoundedNumberOfMembers(t *testing.T) {
	line := `{"a":"` + strings.Repeat("x", readAhead) + `","b":{"c":1,"d":[{"e":2}]}`
	row, err := object([]byte(line + "}"))
	require.NoError(t, err)
	require.Len(t, row, 2, "those of inner objects do not count")
	var many strings.Builder
	for i := range mostColumns {
		fmt.Fprintf(&many, `,"c%d":1`, i)
	}
	_, err = object([]byte(line + many.String() + "}"))
	require.ErrorIs(t, err, errManyCells)
}

func TestATemplateNamesColumnsAtABoundedNumberOfPlaces(t *testing.T) {
	_, err := compile(&apitype.BulkTemplate{Payload: strings.Repeat("{{a}}", mostColumns)})
	require.NoError(t, err)
	_, err = compile(&apitype.BulkTemplate{Payload: strings.Repeat("{{a}}", mostColumns), MessageID: "{{b}}"})
	require.ErrorIs(t, err, errManyTags)
}
