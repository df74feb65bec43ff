#!/usr/bin/env bash
# Relays real webhook bodies through a broker, on the embedded stores and on a
# real MySQL (or MariaDB) and Redis, and fails when any of them is lost, sent
# twice or changed:
#
#   scripts/relay-real.sh
#
# The bodies are the examples of the npm package @octokit/webhooks-examples.
# They are fetched into a temporary folder and are not part of this project.
# The script uses the servers of PENSTOCK_TEST_MYSQL and PENSTOCK_TEST_REDIS if
# set, otherwise it starts private ones; scripts/servers.sh installs these.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version and the number of bodies in it belong together.
VERSION=7.6.1
BODIES=329

if [ -z "${PENSTOCK_BENCH_MYSQL:-}" ]; then
	for program in go npm tar; do
		command -v "$program" >/dev/null 2>&1 || {
			echo "relay-real needs $program in PATH." >&2
			exit 1
		}
	done
	exec ./scripts/servers.sh -exec ./scripts/relay-real.sh
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

archive=$(cd "$folder" && npm pack --silent "@octokit/webhooks-examples@$VERSION")
tar -xzf "$folder/$archive" -C "$folder"
CGO_ENABLED=0 go build -o "$folder/broker" ./cmd/broker
CGO_ENABLED=0 go build -o "$folder/bench" ./cmd/bench

# Copies arrive after a rational delay and a sweep of the reaper, so --quiet is longer.
relay() {
	printf '\n== @octokit/webhooks-examples %s, %d bodies: %s\n' "$VERSION" "$BODIES" "$1"
	shift
	"$folder/bench" run --audit --passes 1 --messages "$BODIES" --quiet 5s \
		--payload-from "$folder/package/api.github.com/index.json" --payload-field examples \
		--content-type application/json --connections 8 --push-consumers 1 --pull-workers 4 "$@"
}
relay "embedded stores"
relay "MySQL and Redis" --mysql "$PENSTOCK_BENCH_MYSQL" --redis "$PENSTOCK_TEST_REDIS"
printf '\nEvery body arrived once, byte for byte, with its headers: nothing lost, nothing twice, nothing changed.\n'
