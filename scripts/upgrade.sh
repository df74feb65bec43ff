#!/usr/bin/env bash
# Upgrades brokers under load and faults, from the last release to this tree, and checks every promise:
#
#   scripts/upgrade.sh [REF [argument of bench chaos ...]]
#
# REF is the commit of the older program, by default the last tag, or the last commit before the
# newest five changes of the tables where there is none. It must be in the history of this clone, and
# its tables must have the version of the first migration of this tree at least.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=${1-}
shift || true
if [ -z "$ref" ] && ! ref=$(git describe --tags --abbrev=0 2>/dev/null); then
	fifth=$(ls durable/migrations/mysql | sort | tail -n 5 | head -n 1)
	ref=$(git log --diff-filter=A --format=%H -- "durable/migrations/mysql/$fifth" | tail -n 1)
	ref=${ref:+$ref~1}
fi
commit=$(git rev-parse --quiet --verify "$ref^{commit}") ||
	{ echo "There is no commit ${ref:-before the last changes of the tables}: clone with the whole history." >&2; exit 2; }
version() { sed -E 's/^0*([0-9]+)_.*/\1/' | sort -n; }
first=$(ls durable/migrations/mysql | version | head -n 1)
last=$(git ls-tree --name-only "$commit:durable/migrations/mysql" | version | tail -n 1)
[ "$last" -ge "$first" ] ||
	{ echo "The tables of $ref have version $last, this tree knows versions from $first on." >&2; exit 2; }
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
mkdir "$old/tree"
git archive "$commit" | tar -x -C "$old/tree"
build() { CGO_ENABLED=0 go build -trimpath "$@"; }
(cd "$old/tree" && build -tags failpoint -ldflags "-X main.version=$(git -C "$OLDPWD" describe --tags --always "$commit")" \
	-o "$old/broker" ./cmd/broker)
build -tags failpoint -o bin/broker-faults ./cmd/broker
build -o bin/bench ./cmd/bench
echo "from $(git log -1 --format='%h, %cs: %s' "$commit")"
./scripts/servers.sh -exec bin/bench chaos --broker "$old/broker" --next bin/broker-faults "$@"
