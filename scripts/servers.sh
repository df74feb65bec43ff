#!/usr/bin/env bash
# Runs the tests against a real MySQL (or MariaDB) and a real Redis:
#
#   scripts/servers.sh [-run regexp] [package ...]
#
# The script first installs missing programs: the two servers, curl, promtool, a C
# compiler for the race detector, and with apt what the tests of the clients need
# (Python, Node and what their users have beside ours). Servers come from PATH, otherwise from apt or
# brew, otherwise from docker compose. A server in PENSTOCK_TEST_MYSQL or
# PENSTOCK_TEST_REDIS is the shared server; tests that kill a server start their own.
set -euo pipefail
cd "$(dirname "$0")/.."
# An ordinary user's PATH often lacks the folders where servers are.
export PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec:$PWD/bin"

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# usable_mysql tests whether a server can use a temporary folder. It tries mysqld,
# because a confined one (AppArmor on Ubuntu) is installed but cannot.
usable_mysql() {
	if have mariadbd; then
		have mariadb-install-db || have mysql_install_db || return 1
		have my_print_defaults # mariadb-install-db needs it; another package has it
		return
	fi
	have mysqld || return 1
	local folder status=0
	folder=$(mktemp -d)
	mysqld --no-defaults $([ "$(id -u)" != 0 ] || echo --user=root) \
		--initialize-insecure --datadir="$folder/data" >/dev/null 2>&1 || status=1
	rm -rf "$folder"
	return $status
}

usable_cc() {
	have gcc || have clang || return 1
	echo '#include <stdlib.h>' | "$(command -v gcc || command -v clang)" -E - >/dev/null 2>&1
}

# install_apt installs the packages of missing programs. The core packages of
# MariaDB contain the programs without a system service.
install_apt() {
	say "Installing with apt what the tests need ..."
	as_root apt-get update -q >&2
	local packages=()
	if ! usable_mysql; then
		if apt-cache show mariadb-server-core >/dev/null 2>&1; then
			packages+=(mariadb-server-core mariadb-client-core)
		else
			packages+=(mariadb-server)
		fi
	fi
	have redis-server || have valkey-server || packages+=(redis-server)
	usable_cc || packages+=(gcc libc6-dev)
	have curl || packages+=(curl ca-certificates)
	have openssl || packages+=(openssl)
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
}

# unpack_promtool takes one program out of the package of Prometheus, whose server
# would start when it is installed.
unpack_promtool() {
	local folder status=0
	folder=$(mktemp -d)
	mkdir -p bin
	(cd "$folder" && { apt-get download -q prometheus || { as_root apt-get update -q && apt-get download -q prometheus; }; } &&
		dpkg-deb -x prometheus_*.deb .) >&2 && cp "$folder/usr/bin/promtool" bin/promtool || status=1
	rm -rf "$folder"
	return $status
}

# install_compose cannot give the fault tests their own servers.
install_compose() {
	say "Starting MySQL and Redis with docker compose. Tests that kill or pause a server"
	say "will fail: they need mariadbd and redis-server on this machine."
	docker compose up -d --wait mysql redis >&2
	export PENSTOCK_TEST_MYSQL="${PENSTOCK_TEST_MYSQL:-root:${PENSTOCK_MYSQL_PASSWORD:-penstock}@tcp(127.0.0.1:${PENSTOCK_MYSQL_PORT:-3306})/}"
	export PENSTOCK_TEST_REDIS="${PENSTOCK_TEST_REDIS:-redis://:${PENSTOCK_REDIS_PASSWORD:-penstock}@127.0.0.1:${PENSTOCK_REDIS_PORT:-6379}/0}"
}

complete() {
	usable_mysql && { have redis-server || have valkey-server; } && usable_cc && have curl &&
		have openssl
}

have go || { say "Go is not installed: see https://go.dev/dl/"; exit 1; }

if ! complete; then
	if have apt-get && { [ "$(id -u)" = 0 ] || have sudo; }; then
		install_apt
	elif have brew; then
		say "Installing with brew what the tests need ..."
		brew install mariadb redis prometheus >&2
	elif have docker && docker compose version >/dev/null 2>&1; then
		install_compose
	fi
	if ! complete && [ -z "${PENSTOCK_TEST_MYSQL:-}" ]; then
		say "The tests need mariadbd (or mysqld), redis-server, curl, openssl and a C compiler in PATH,"
		say "and neither apt (as root or with sudo), brew nor docker compose is here to provide them."
		exit 1
	fi
fi

# The test of the rules for alerts needs promtool; programs that -exec runs do not.
if [ "${1:-}" != -exec ] && ! have promtool; then
	{ have apt-get && unpack_promtool; } || say "promtool is not installed: the test of deploy/prometheus will fail."
fi

# The tests of the clients need Python and Node with the frameworks of their users, that of the
# dashboard a browser.
[ "${1:-}" = -exec ] || ./scripts/toolchains.sh

# Built, not `go run`: signals and the exit code then reach the right process.
mkdir -p bin
go build -o bin/testrun ./internal/test/servers/testrun
exec bin/testrun "$@"
