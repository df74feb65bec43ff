#!/usr/bin/env bash
# Measures the clients for Python and Node beside Celery and BullMQ on Redis, on this machine:
#
#   scripts/clients.sh [flags of `bench/peers clients`, such as -rounds 1 -json clients.json]
#
# The table goes to standard output as Markdown, progress to standard error; docs/explain/clients-beside.md
# explains both. The script first installs what is missing: Redis, MariaDB, Celery and redis-py with
# apt, BullMQ with npm into bin/peers/clients. It is bounded: ten minutes with what it builds.
set -euo pipefail
cd "$(dirname "$0")/.."
# An ordinary user's PATH often lacks the folders where servers are.
export PATH="$PATH:/usr/sbin:/usr/local/sbin"

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

[ "$(uname -s)" = Linux ] || { say "bench/peers needs Linux: it reads memory from /proc."; exit 1; }
have go || { say "Go is not installed: see https://go.dev/dl/"; exit 1; }

packages=()
have redis-server || packages+=(redis-server)
have mariadbd && have mariadb-install-db && have my_print_defaults || packages+=(mariadb-server-core mariadb-client-core)
/usr/bin/python3 -c 'import celery, redis' 2>/dev/null || packages+=(python3-celery python3-redis)
have node || packages+=(nodejs)
have npm || packages+=(npm)
if [ ${#packages[@]} -gt 0 ]; then
	have apt-get || { say "Install ${packages[*]}."; exit 1; }
	say "Installing with apt: ${packages[*]} ..."
	install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2; }
	install || { as_root apt-get update -q >&2 && install; }
fi

# Our package for Node is installed as its users have it, from its tarball, beside BullMQ.
folder=bin/peers/clients
mkdir -p "$folder"
cp bench/peers/clients/* "$folder"
cp clients/node/.npmrc "$folder"
rm -f "$folder"/penstock-*.tgz
(cd clients/node && npm ci --silent && npm run --silent build && npm pack --silent --pack-destination "../../$folder") >&2
(cd "$folder" && npm ci --silent && npm install --silent --no-save ./penstock-*.tgz) >&2

version=$(git describe --tags --always --dirty 2>/dev/null || echo dev)
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$version" -o bin/peers/broker ./cmd/broker
go build -C bench/peers -o ../../bin/peers/peers .

# Not `go run`: signals and the exit code then reach the right process.
exec bin/peers/peers clients -broker bin/peers/broker "$@"
