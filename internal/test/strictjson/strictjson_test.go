package strictjson

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type inner struct {
	Code string            `json:"code,omitempty"`
	Map  map[string]string `json:"Map,omitempty"`
}

type outer struct {
	inner
	A    int     `json:"A"`
	List []inner `json:"List"`
}

func TestOnlyTextsOfTheTypePass(t *testing.T) {
	for _, text := range []string{
		`{"A":1,"List":[]}`, ` { "A" : 1 , "List" : [ ] } `, `{"code":"\u0061\/","A":0,"List":[{},{"code":"b"}]}`,
		`{"Map":{"b":"1","a":"2"},"A":1,"List":null}`,
	} {
		require.NoError(t, Check([]byte(text), &outer{}), text)
	}
	for name, text := range map[string]string{
		"an unknown member":        `{"A":1,"List":[],"B":1}`,
		"a missing member":         `{"A":1}`,
		"a member in another case": `{"a":1,"List":[]}`,
		"a member twice":           `{"A":1,"A":1,"List":[]}`,
		"another order":            `{"List":[],"A":1}`,
		"an empty optional member": `{"code":"","A":1,"List":[]}`,
		"another order inside":     `{"A":1,"List":[{"Map":{"a":"b"},"code":"c"}]}`,
		"a name of a map twice":    `{"Map":{"a":"2","a":"2"},"A":1,"List":[]}`,
		"two values":               `{"A":1,"List":[]}{}`,
		"no UTF-8":                 "{\"code\":\"\xff\",\"A\":1,\"List\":[]}",
		"another type":             `{"A":1,"List":[1]}`,
		"another number":           `{"A":1.0,"List":[]}`,
		"no JSON":                  `{`,
	} {
		require.Error(t, Check([]byte(text), &outer{}), name)
	}
}

func TestMembersThatNoTextHasAreMissing(t *testing.T) {
	members := Of(outer{})
	sorted := func() []string { return slices.Sorted(slices.Values(members.Missing())) }
	require.Equal(t, []string{"inner.Map", "inner.code", "outer.A", "outer.List"}, sorted())
	members.Decode(t, []byte(`{"A":1,"List":[{},{"code":"x"}]}`), &outer{})
	require.Equal(t, []string{"inner.Map"}, sorted())
	members.Decode(t, []byte(`{"Map":{"a":"b"},"A":1,"List":[]}`), &outer{})
	require.Empty(t, sorted())
	require.Equal(t, []string{"code", "Map", "A", "List"}, Names(outer{}))
}
