package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASearchIsReadAsTermsOrAsAnIDOrAName(t *testing.T) {
	for q, want := range map[string]terms{
		"channel:orders":                        {channel: "orders"},
		"consumer:billing state:DEAD":           {consumer: "billing", state: "dead"},
		"consumer:orders/billing error:timeout": {channel: "orders", consumer: "billing", fault: "timeout"},
		`payload:"order 17"  producer:shop`:     {payload: "order 17", producer: "shop"},
		`payload:a:b`:                           {payload: "a:b"},
		`payload:{\"order\":17} age<1h`:         {payload: `{"order":17}`, from: now.Add(-time.Hour)},
		`payload:"\"order\": 17" state:dead`:    {payload: `"order": 17`, state: "dead"},
		`payload:a\b`:                           {payload: `a\b`},
		"channel:c consumer:c/k":                {channel: "c", consumer: "k"},
		"consumer:k state:dead age>1h error:timeout payload:x producer:p": {consumer: "k", state: "dead",
			to: now.Add(-time.Hour), fault: "timeout", payload: "x", producer: "p"},
		"age>1h":           {to: now.Add(-time.Hour)},
		"age:<2d age>=90s": {from: now.Add(-48 * time.Hour), to: now.Add(-90 * time.Second)},
		"state:dead state:dead error:\"status 500\"\t ": {state: "dead", fault: "status 500"},
	} {
		got, plain, refused := readTerms(q, now)
		require.Empty(t, refused, q)
		require.NotNil(t, got, q)
		require.Equal(t, want, *got, q)
		require.Empty(t, plain, q)
	}
	for q, want := range map[string]string{"": "", "order-17": "order-17", "urn:order:17": "urn:order:17",
		`"state:dead"`: "state:dead", `two  words`: "two words", `"age>1h"`: "age>1h", "age": "age", "age:17": "age:17"} {
		got, plain, refused := readTerms(q, now)
		require.Empty(t, refused, q)
		require.Nil(t, got, q)
		require.Equal(t, want, plain, q)
	}
	for q, want := range map[string]string{
		`payload:"a`: refusedQuote, `"`: refusedQuote, "state:over": refusedState, "state:": "state: needs a value.",
		"channel:a channel:b":            "channel: occurs twice.",
		"channel:a consumer:b/k":         refusedTwo,
		"order-17 state:dead":            `"order-17" is no term. An ID or a name is searched for alone.`,
		"error:x state:delivered":        refusedOver,
		"age>soon":                       `age> is followed by a duration like 90s, 1h or 2d, not "soon".`,
		"age<-1h":                        `age< is followed by a duration like 90s, 1h or 2d, not "-1h".`,
		"age<":                           `age< is followed by a duration like 90s, 1h or 2d, not "".`,
		"age>1h age:>2h":                 "age> occurs twice.",
		"age>9999999999999999999w":       `age> is followed by a duration like 90s, 1h or 2d, not "9999999999999999999w".`,
		"consumer:k channel:a age>1h  z": `"z" is no term. An ID or a name is searched for alone.`,
	} {
		_, _, refused := readTerms(q, now)
		require.Equal(t, want, refused, q)
	}
}

func FuzzASearchIsReadOrRefused(f *testing.F) {
	for _, q := range []string{"", "a", `"`, `age>1h`, `error:"a b" state:dead`, "consumer:/", "age:"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, q string) {
		found, plain, refused := readTerms(q, now)
		if refused != "" {
			require.Nil(t, found)
			require.Empty(t, plain)
		}
	})
}

func TestASearchIsCompletedWithTheTermsThatItLacks(t *testing.T) {
	of := []MessageJob{{Consumer: "c", ID: "k"}, {Consumer: "d", ID: "l"}}
	all := suggestions("", nil, of)
	require.Contains(t, all, "consumer:c/k")
	require.Contains(t, all, "consumer:d/l")
	require.Contains(t, all, "state:dead")
	require.Empty(t, suggestions("order-17", nil, of))
	q := "channel:d age>1h"
	found, _, _ := readTerms(q, now)
	more := suggestions(q, found, of)
	require.Contains(t, more, q+" consumer:d/l")
	require.NotContains(t, more, q+" consumer:c/k")
	require.NotContains(t, more, q+" age>1h")
	require.Contains(t, more, q+" age<1h")
}
