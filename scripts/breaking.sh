#!/usr/bin/env bash
# Lists what of internal/feature/openapi/openapi.json would break a client of the last tag:
#
#   scripts/breaking.sh [REF [FOLDER]]
#
# REF is another commit to compare with, FOLDER the repository, by default this one. What is compared
# is the file as it lies there. The exit code is 0 without such a change and where there is no release
# yet, 1 with one, 2 where the comparison failed. oasdiff, pinned in scripts/breaking/go.mod, compares.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ref=${1-}
folder=$(cd "${2:-$here/..}" && pwd)
file=internal/feature/openapi/openapi.json

if [ -z "$ref" ] && ! ref=$(git -C "$folder" describe --tags --abbrev=0 2>/dev/null); then
	echo "There is no tag yet, so no release that a change could break. REF= names a commit to compare with."
	exit 0
fi
git -C "$folder" rev-parse --quiet --verify "$ref^{commit}" >/dev/null || { echo "There is no commit $ref." >&2; exit 2; }
if ! git -C "$folder" cat-file -e "$ref:$file" 2>/dev/null; then
	echo "$ref has no $file, so there is nothing to compare with."
	exit 0
fi
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
git -C "$folder" show "$ref:$file" >"$old/$(basename "$file")"

code=0
go -C "$here/breaking" tool oasdiff breaking --fail-on ERR "$old/$(basename "$file")" "$folder/$file" || code=$?
case $code in
0) echo "Nothing in $file breaks a client of $ref." ;;
1) exit 1 ;;
*) echo "oasdiff failed ($code)." >&2; exit 2 ;;
esac
