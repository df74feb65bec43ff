#!/usr/bin/env bash
# Measures RabbitMQ, NATS JetStream and asynq beside Penstock, on this machine:
#
#   scripts/peers.sh [flags of bench/peers, such as -rounds 5 -json peers.json]
#
# The table goes to standard output as Markdown, progress to standard error; the
# page docs/peers.md explains both. The script first installs missing programs:
# RabbitMQ, Redis and MariaDB with apt, and a current NATS server as a Go module,
# because that of the distribution may lack sync_interval. With PEERS_INSTALL=no
# it installs nothing; -subjects then selects the subjects that can be measured.
set -euo pipefail
cd "$(dirname "$0")/.."
# An ordinary user's PATH often lacks the folders where servers are.
export PATH="$PATH:/usr/sbin:/usr/local/sbin"

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

have_rabbitmq() {
	[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || have rabbitmq-server
}

complete() {
	have_rabbitmq && have epmd && have redis-server && have mariadbd && have mariadb-install-db && have my_print_defaults
}

# forbid_services keeps packages from starting their servers while they are
# installed: a benchmark should not leave a broker listening. An existing policy
# stays unchanged.
policy=/usr/sbin/policy-rc.d
forbid_services() {
	[ ! -e "$policy" ] || return 0
	trap 'as_root rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
	as_root chmod 755 "$policy"
}

allow_services() {
	trap - EXIT
	[ "${1:-}" != ours ] || as_root rm -f "$policy"
}

install_apt() {
	local packages=() whose=ours
	have_rabbitmq && have epmd || packages+=(rabbitmq-server)
	have redis-server || packages+=(redis-server)
	have mariadbd && have mariadb-install-db && have my_print_defaults || packages+=(mariadb-server-core mariadb-client-core)
	say "Installing with apt: ${packages[*]} ..."
	as_root apt-get update -q >&2
	[ ! -e "$policy" ] || whose=theirs
	forbid_services
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
	allow_services "$whose"
}

[ "$(uname -s)" = Linux ] || { say "bench/peers needs Linux: it reads CPU times from /proc."; exit 1; }
have go || { say "Go is not installed: see https://go.dev/dl/"; exit 1; }

if ! complete && [ "${PEERS_INSTALL:-yes}" != no ]; then
	if have apt-get && { [ "$(id -u)" = 0 ] || have sudo; }; then
		install_apt
	else
		say "Without apt, install rabbitmq-server, redis-server and mariadb yourself, or choose with -subjects."
	fi
fi

version=$(git describe --tags --always --dirty 2>/dev/null || echo dev)
mkdir -p bin/peers
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$version" -o bin/peers/broker ./cmd/broker
CGO_ENABLED=0 go build -trimpath -o bin/peers/bench ./cmd/bench
go build -C bench/peers -o ../../bin/peers/nats-server github.com/nats-io/nats-server/v2
go build -C bench/peers -o ../../bin/peers/peers .

# Not `go run`: signals and the exit code then reach the right process.
exec bin/peers/peers -broker bin/peers/broker -nats-server bin/peers/nats-server "$@"
