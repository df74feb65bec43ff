#!/usr/bin/env bash
# Builds the release archives into dist/: scripts/dist.sh <version>
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/dist.sh <version>}
rm -rf dist
mkdir -p dist
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
	name="penstock-$version-${platform%/*}-${platform#*/}"
	mkdir "dist/$name"
	CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} \
		go build -trimpath -ldflags "-s -w -X main.version=$version" -o "dist/$name/" ./cmd/broker ./cmd/bench
	cp LICENSE "dist/$name/"
	tar -C dist -czf "dist/$name.tar.gz" "$name"
	rm -r "dist/$name"
done
(cd dist && sha256sum ./*.tar.gz >SHA256SUMS)
