#!/usr/bin/env bash
# Runs the tests on a Galera cluster of three nodes, with a broker on each: scripts/galera.sh [-run regexp ...]
# It installs Galera with apt where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! ls /usr/lib/galera/libgalera_smm.so >/dev/null 2>&1 || ! command -v rsync >/dev/null || ! command -v wsrep_sst_rsync >/dev/null; then
	root=()
	[ "$(id -u)" = 0 ] || root=(sudo)
	"${root[@]}" apt-get update -q >&2
	"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends mariadb-server galera-4 rsync lsof >&2
fi
exec ./scripts/servers.sh -exec go test -tags galera -count=1 -run Galera "$@" ./cmd/broker
