package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const manifest = `
producers:
  shop: {name: The shop, token: "${SHOP_TOKEN}", publishSecret: "${SIGN}", maxScheduled: 1000, maxStoredBytes: 10GiB}
channels:
  orders:
    token: ${ORDERS_TOKEN}
    name: $${it}
    latencyBudget: 0.08s
    consumers:
      billing:
        callbackUrl: http://127.0.0.1:9/${KEY}
        policy:
          maxRetries: 3
          timeout: 120s
          backoff: [5s, 30s, 60s]
          ordered: true
          authorization: bearer ${BEARER}
          headers: |-
            X-A: b
            X-C: d
      archive: {type: pull}
`

var manifestEnv = []string{"SHOP_TOKEN=shop-word", "SIGN=0123456789-sign-word", "ORDERS_TOKEN=orders-word",
	"KEY=key-word", "BEARER=bearer-word"}

func (w *terminal) write(name, text string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.folder, name), []byte(text), 0o600))
}

// What a file says is made, once; and what export prints says it again, without a secret.
func TestAManifestOfCtlMakesABroker(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	w.write("m.yaml", manifest)
	s := w.run("broker ctl apply -f m.yaml", "KEY=x")
	require.Equal(t, 1, s.code)
	require.Contains(t, s.stderr, "nothing was done: these variables are not set: BEARER, ORDERS_TOKEN, SHOP_TOKEN, SIGN")
	require.Equal(t, 404, p.do("GET", "/producer/shop", "").status)

	diff := w.run("broker ctl diff -f m.yaml", manifestEnv...)
	require.Equal(t, 4, diff.code, diff.stderr)
	require.Contains(t, diff.stdout, "+ consumer orders/billing\n")
	require.Contains(t, diff.stdout, "\n4 changes\n")
	require.Equal(t, 404, p.do("GET", "/producer/shop", "").status, "diff changes nothing")
	applied := w.ok("broker ctl apply -f m.yaml", manifestEnv...)
	require.Equal(t, strings.Replace(diff.stdout, "4 changes", "4 changes are done", 1), applied)
	billing := p.do("GET", "/channel/orders/consumer/billing", "")
	require.Contains(t, billing.body, `"CallbackURL":"http://127.0.0.1:9/key-word"`)
	require.Contains(t, billing.body, `"Timeout":"2m"`)
	require.Contains(t, p.do("GET", "/channel/orders", "").body, `"Name":"${it}","Token":"orders-word"`)
	require.Contains(t, p.do("GET", "/producer/shop", "").body, `"Signed":true`)

	again := w.ok("broker ctl apply -f m.yaml", manifestEnv...)
	require.Equal(t, "0 changes are done; 2 tokens and secrets stay: their variables are not set, or the broker does not "+
		"show them\n", again, "another spelling of a value is none")
	require.Equal(t, billing.body, p.do("GET", "/channel/orders/consumer/billing", "").body)

	export := w.ok("broker ctl export > e.yaml; broker ctl export --json > e.json; cat e.yaml e.json")
	for _, file := range []string{"e.yaml", "e.json"} {
		require.True(t, strings.HasPrefix(w.ok("broker ctl diff --prune -f "+file), "0 changes"), file)
	}
	shown := export + diff.stdout + w.ok("broker ctl apply -f m.yaml --secrets", manifestEnv...)
	for _, secret := range []string{"shop-word", "sign-word", "orders-word", "bearer-word", adminToken} {
		require.NotContains(t, shown, secret)
	}

	other := newTerminal(t, embeddedWorld(t).start())
	other.write("e.yaml", w.ok("cat e.yaml"))
	s = other.run("broker ctl apply -f e.yaml")
	require.Contains(t, s.stderr, "CONSUMER_ORDERS_BILLING_AUTHORIZATION")
	env := []string{}
	_, list, _ := strings.Cut(strings.TrimSpace(s.stderr), "not set: ")
	for name := range strings.SplitSeq(list, ", ") {
		env = append(env, name+"=bearer some-word-of-mine")
		if strings.HasSuffix(name, "TOKEN") || strings.HasSuffix(name, "PUBLISH_SECRET") {
			env[len(env)-1] = name + "=some-word-of-" + name
		}
	}
	other.ok("broker ctl apply -f e.yaml", env...)
	other.ok("broker ctl export > mine.yaml && cmp mine.yaml e.yaml")
}

// The policy of a consumer is whole; everything else that is not named stays. Only --prune deletes, and only from lists
// that the file has.
func TestAManifestOfCtlChangesWhatItNames(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start("BROKER_ALLOW_DELETE=true")
	w := newTerminal(t, p)
	p.put("/producer/shop", "name", "The shop")
	p.put("/channel/orders", "expectEvery", "15m", "token", "c-word")
	p.put("/channel/orders/consumer/billing", "type", "pull", "maxRetries", "3", "timeout", "2m", "token", "k-word")
	p.put("/channel/orders/consumer/old", "type", "pull")
	p.put("/channel/gone")
	p.put("/channel/gone/consumer/k", "type", "pull")

	w.write("m.yaml", "channels: {orders: {duplicates: acknowledge, consumers: {billing: {policy: {timeout: 3m}}}}}")
	diff := w.run("broker ctl diff -f m.yaml")
	require.Equal(t, "~ channel orders\n    duplicates  refuse -> acknowledge\n~ consumer orders/billing\n"+
		"    policy.timeout     2m -> 3m\n    policy.maxRetries  3 -> its default\n2 changes\n", diff.stdout)
	lines := strings.Split(strings.TrimSpace(w.run("broker ctl diff -f m.yaml --json").stdout), "\n")
	require.Len(t, lines, 2)
	var c struct {
		Action, Kind, Name string
		Fields             []struct{ Field, From, To string }
	}
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &c))
	require.Equal(t, "refuse", c.Fields[0].From)
	w.ok("broker ctl apply -f m.yaml")
	require.Contains(t, p.do("GET", "/channel/orders", "").body, `"ExpectEvery":"15m"`)
	billing := p.do("GET", "/channel/orders/consumer/billing", "").body
	require.Contains(t, billing, `"Token":"k-word"`)
	require.Contains(t, billing, `"MaxRetries":"5"`)
	require.Equal(t, 200, p.do("GET", "/channel/gone/consumer/k", "").status)

	require.Equal(t, "- consumer gone/k\n- consumer orders/old\n- channel gone\n3 changes\n",
		w.run("broker ctl diff -f m.yaml --prune").stdout)
	w.ok("broker ctl profile add prod --url " + p.base + " --danger")
	s := w.enter("no\n", "broker ctl apply -f m.yaml --prune --profile prod --token "+adminToken)
	require.Equal(t, 1, s.code)
	require.Contains(t, s.stderr, "nothing was done")
	require.Equal(t, 200, p.do("GET", "/channel/gone", "").status)
	w.ok("broker ctl apply -f m.yaml --prune")
	require.Equal(t, 404, p.do("GET", "/channel/gone", "").status)
	require.Equal(t, 404, p.do("GET", "/channel/orders/consumer/old", "").status)
	require.Equal(t, 200, p.do("GET", "/producer/shop", "").status, "the file has no list of producers")
}

// What is refused ends an apply, and a file with a mistake changes nothing.
func TestAManifestOfCtlWithAMistake(t *testing.T) {
	parallel(t)
	p := embeddedWorld(t).start()
	w := newTerminal(t, p)
	w.write("m.yaml", "channels: {c: {consumers: {k: {type: pull, policy: {maxRetrys: 1}}, l: {type: pull}}}}")
	s := w.run("broker ctl apply -f m.yaml")
	require.Equal(t, 2, s.code)
	require.Contains(t, s.stderr, "consumer c/k: ")
	require.Contains(t, s.stderr, "(unknown_field); 1 of 3 changes were done before")
	require.Equal(t, "+ channel c\n", s.stdout)
	require.Equal(t, 404, p.do("GET", "/channel/c/consumer/l", "").status)
	w.ok("sed -i s/maxRetrys/maxRetries/ m.yaml && broker ctl apply -f m.yaml")
	for text, want := range map[string]string{
		"":                                     "is empty",
		"# nothing":                            "is empty",
		"consumers: {}":                        `"consumers" is no part of a manifest`,
		"channels: [d]":                        "channels must be a mapping",
		"channels: {a/b: }":                    `"a/b" is no channel`,
		"channels: {d: {x: {y: 1}}}":           "x of d must be a text",
		"channels: {d: {token: generate}}":     "a file generates nothing",
		"channels: {d: , d: }":                 `channels has "d" twice`,
		"channels: {d: {name: a, Name: b}}":    `d has "Name" twice`,
		"channels: {d: {token: '${my-word}'}}": "must be a variable like ${NAME}",
		"channels: {d: {token: *my-word}}":     "is no YAML",
		"channels: &a {d: *a}":                 "d of d must be a text",
		"a: b: c":                              "is no YAML",
		"channels: {}\n---\nchannels: {}":      "more than one document",
	} {
		w.write("bad.yaml", text)
		s := w.run("broker ctl apply -f bad.yaml --prune")
		require.Equal(t, 1, s.code, text)
		require.Contains(t, s.stderr, want, text)
		require.NotContains(t, s.stderr, "my-word")
	}
	require.Equal(t, 404, p.do("GET", "/channel/d", "").status)
	require.Equal(t, 200, p.do("GET", "/channel/c/consumer/k", "").status)
	require.Equal(t, 3, w.run("broker ctl diff -f m.yaml --url http://"+freeAddr(t)).code)
	w.write("p.yaml", "channels: {}")
	s = w.run("broker ctl apply -f p.yaml --prune")
	require.Contains(t, s.stderr, "BROKER_ALLOW_DELETE")
}
