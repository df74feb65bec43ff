#!/usr/bin/env bash
# Relays real webhook bodies through a broker, on the embedded stores and on a
# real MySQL (or MariaDB) and Redis, and fails when any of them is lost, sent
# twice or changed:
#
#   scripts/relay-real.sh
#
# The bodies are the examples of the npm package @octokit/webhooks-examples.
# They are fetched into a temporary folder and are no part of this project.
# Servers named by PENSTOCK_TEST_MYSQL and PENSTOCK_TEST_REDIS are used, else
# private ones are started; `make test` installs what is missing for that.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version and the number of bodies in it belong together.
VERSION=7.6.1
BODIES=329

for program in go npm tar; do
	command -v "$program" >/dev/null 2>&1 || {
		echo "relay-real needs $program in PATH." >&2
		exit 1
	}
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

archive=$(cd "$folder" && npm pack --silent "@octokit/webhooks-examples@$VERSION")
tar -xzf "$folder/$archive" -C "$folder"
echo "@octokit/webhooks-examples $VERSION: $BODIES bodies expected"

CGO_ENABLED=0 go build -o "$folder/broker" ./cmd/broker
CGO_ENABLED=0 go build -o "$folder/relayreal" ./internal/relayreal
"$folder/relayreal" -broker "$folder/broker" -examples "$folder/package/api.github.com/index.json" -expect "$BODIES"
