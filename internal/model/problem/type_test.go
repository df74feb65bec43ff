package problem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/internal/model/apitype"
	"github.com/penstock-broker/penstock/internal/test/strictjson"
)

func TestTheBodyIsOfItsType(t *testing.T) {
	members := strictjson.Of(apitype.Problem{})
	for _, text := range []string{"", "plain", "\x00\x1f\x7f\u2028\"\\</script>&\U0001f600"} {
		p := New(409, "code", text)
		var got apitype.Problem
		members.Decode(t, p.JSON(text), &got)
		require.Equal(t, apitype.Problem{Type: "/docs/errors#code", Title: "Conflict", Status: 409, Detail: text,
			Code: "code", RequestID: text}, got)
	}
	require.Empty(t, members.Missing())
	require.Equal(
		t, `{"type":"/docs/errors#code","title":"Conflict","status":409,"detail":"\u003ca\u0026b\u003e","code":"code"}`+
			"\n", string(New(409, "code", "<a&b>").JSON("")))
	require.Equal(t, `{"type":"/docs/errors#code","title":"Not Found","status":404,"code":"code","request_id":"r"}`+"\n",
		string(New(404, "code", "").JSON("r")))
}
