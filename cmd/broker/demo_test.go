package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-broker/penstock/durable"
)

func TestTheSamplePrintsADeliveryAndAcceptsIt(t *testing.T) {
	var out bytes.Buffer
	d := &demo{out: &out}
	for _, tc := range []struct{ body, want string }{
		{`{"hello":"world"}`, `{"hello":"world"}`},
		{"\xff\x00", "ff00"},
		{strings.Repeat("x", 1000) + strings.Repeat("y", 5000), strings.Repeat("x", 1000) + strings.Repeat("y", 24) + "\n"},
	} {
		out.Reset()
		r := httptest.NewRequest(http.MethodPost, "/sample", strings.NewReader(tc.body))
		r.Header.Set("X-Broker-Message-ID", "m1")
		r.Header.Set("X-Broker-Consumer-Token", "secret")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Contains(t, out.String(), "POST /sample")
		require.Contains(t, out.String(), "m1")
		require.Contains(t, out.String(), tc.want)
		require.NotContains(t, out.String(), "secret")
	}
}

func TestTheSampleIsCreatedOnceAndFollowsItsSink(t *testing.T) {
	store, err := durable.OpenSQLite(t.Context(), t.TempDir(), durable.Options{})
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, store.Migrate(t.Context()))
	for range 2 {
		sink := httptest.NewServer(http.NotFoundHandler())
		d := &demo{listener: sink.Listener}
		require.NoError(t, d.create(t.Context(), store))
		got, err := store.Changes(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, got.Producers, 1)
		require.Equal(t, "sample-producer-token", got.Producers[0].Token)
		require.Len(t, got.Channels, 1)
		require.Equal(t, 2, got.Channels[0].Audience)
		require.Len(t, got.Consumers, 2)
		for _, k := range got.Consumers {
			require.Equal(t, k.ID+"-token", k.Token)
			if k.Type == durable.Push {
				require.Equal(t, sink.URL+"/sample", k.CallbackURL)
			}
		}
		sink.Close()
	}
}
