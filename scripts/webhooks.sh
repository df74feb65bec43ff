#!/usr/bin/env bash
# Delivers messages to a sink that verifies their signatures with the npm package standardwebhooks,
# before and after a change of the secret. Needs node and npm, and installs the package into a
# temporary folder.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
pids=()
end() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap end EXIT
go build -o "$dir/broker" ./cmd/broker
npm install --silent --prefix "$dir" standardwebhooks@1.0.0 >/dev/null
cp scripts/webhooks.mjs "$dir/"
node "$dir/webhooks.mjs" "$dir" &
sink=$!
pids+=("$sink")
for _ in $(seq 100); do test -s "$dir/sink" && break || sleep 0.1; done
BROKER_LISTEN=127.0.0.1:0 BROKER_DATA_DIR="$dir/data" BROKER_LOG_FILE="$dir/log" "$dir/broker" serve &
pids+=($!)
for _ in $(seq 100); do
	base=$(grep -o '"listen":"[^"]*"' "$dir/log" 2>/dev/null | cut -d'"' -f4 || true)
	test -n "$base" && break || sleep 0.1
done
put() { curl -sf -X PUT "http://$base$1" "${@:2}"; }
publish() {
	curl -sf -o /dev/null -X POST "http://$base/channel/c/broadcast" -H 'X-Broker-Channel-Token: t' \
		-H 'X-Broker-Producer-ID: p' -H 'X-Broker-Producer-Token: t' -d "$1"
}
put /producer/p -d token=t >/dev/null
put /channel/c -d token=t >/dev/null
put /channel/c/consumer/k -d token=t -d "callbackUrl=$(cat "$dir/sink")" -d signingSecret=generate >"$dir/secret.json"
publish '{"message":"signed"}'
put /channel/c/consumer/k -d signingSecret=generate >/dev/null # the sink still has the secret before
publish '{"message":"signed by both secrets"}'
wait "$sink"
