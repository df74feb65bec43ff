#!/usr/bin/env bash
# Prints the licenses of the modules that the broker is made of: scripts/licenses.sh
set -euo pipefail
cd "$(dirname "$0")/.."
own=$(go list -m)
CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{.Path}}{{"\t"}}{{.Version}}{{"\t"}}{{.Dir}}{{end}}' ./cmd/broker |
	sort -u | while IFS=$'\t' read -r module version folder; do
	case "$module" in "" | "$own" | "$own"/*) continue ;; esac
	found=$(find "$folder" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort)
	[ -n "$found" ] || { echo "$module $version has no license in $folder" >&2; exit 1; }
	printf '==== %s %s ====\n\n' "$module" "$version"
	while read -r file; do cat "$file" && echo; done <<<"$found"
done
printf '==== Go, the standard library ====\n\n'
cat "$(go env GOROOT)/LICENSE"
