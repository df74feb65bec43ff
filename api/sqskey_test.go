package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

// The list of the access keys of a channel has no secret, and a channel has no more than it may.
func TestAccessKeysOfAChannelAreListedAndBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.channel()
	w.get("/channel/none/sqs-key").problem(404, "channel_not_found")
	require.Empty(t, w.get("/channel/c/sqs-key").is(200).json()["Result"])
	var secrets []string
	made := map[string]bool{}
	for range durable.MaxSQSKeys {
		r := w.post("/channel/c/sqs-key").is(201).json()
		made[r["AccessKeyId"].(string)] = true
		secrets = append(secrets, r["SecretAccessKey"].(string))
	}
	w.post("/channel/c/sqs-key").problem(409, "too_many_sqs_keys")

	last, pages := "", 0
	for next := "/channel/c/sqs-key?size=7"; next != ""; pages++ {
		r := w.get(next).is(200)
		require.NotEmpty(t, r.Header("Last-Modified"))
		for _, secret := range secrets {
			require.NotContains(t, r.Body, secret)
		}
		page := r.json()
		for _, one := range page["Result"].([]any) {
			k := one.(map[string]any)
			require.Len(t, k, 2)
			require.NotEmpty(t, k["CreatedAt"])
			id := k["AccessKeyId"].(string)
			require.Greater(t, id, last)
			require.True(t, made[id])
			delete(made, id)
			last = id
		}
		next, _ = page["Pages"].(map[string]any)["next"].(string)
	}
	require.Empty(t, made, "each key is listed")
	require.Equal(t, 3, pages)

	w.do("DELETE", "/channel/c/sqs-key/"+last, "").is(204)
	w.post("/channel/c/sqs-key").is(201)
}
