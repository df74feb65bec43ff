#!/usr/bin/env bash
# Builds what a release has into dist/: scripts/dist.sh <version>
#
#   PARTS      of archives, packages (deb and rpm, linux), sbom (CycloneDX) and chart; all by default
#   PLATFORMS  as in Go: linux/amd64 ...
#   OUT        another folder than dist
#
# The same commit and version give the same bytes: times are those of the commit, or SOURCE_DATE_EPOCH.
# It needs GNU tar.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/dist.sh <version>}
parts=${PARTS:-archives packages sbom chart}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
out=${OUT:-dist}
NFPM=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
CYCLONEDX=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022
has() { [[ " $parts " == *" $1 "* ]]; }
packed() { # packed <folder> <name>: a tar.gz of a name in a folder
	tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w -cf - "$2" | gzip -9n
}

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
./scripts/licenses.sh >"$work/THIRD-PARTY-LICENSES"
if has sbom; then
	go mod download # it looks for licenses in the cache of modules
	GOBIN="$work/bin" go install -trimpath "$CYCLONEDX"
fi

# The version as deb and rpm sort it: v1.2.0-rc1 is 1.2.0~rc1, before 1.2.0; v1.2.0-3-gabc is 1.2.0+3.gabc,
# behind it; a commit without a tag is below all releases.
package_version() {
	case "$version" in
	v[0-9]*.[0-9]*.[0-9]* | [0-9]*.[0-9]*.[0-9]*)
		sed -E 's/^v//; s/-([0-9]+)-g/+\1.g/; s/-dirty$/+dirty/; s/-/~/g' <<<"$version" ;;
	*) printf '0.0.0~git%s.%s\n' "$SOURCE_DATE_EPOCH" "$(tr -c 'A-Za-z0-9\n' . <<<"$version")" ;;
	esac
}

archive() { # archive <folder of programs> <name>
	mkdir "$work/$2"
	cp "$1"/* LICENSE "$work/THIRD-PARTY-LICENSES" "$work/$2/"
	packed "$work" "$2" >"$out/$2.tar.gz"
}

packages() { # packages <folder of programs> <architecture>
	export PACKAGE_VERSION ARCH=$2 STAGE=$work/package
	PACKAGE_VERSION=$(package_version)
	rm -rf "$STAGE"
	mkdir "$STAGE"
	cp "$1/broker" "$STAGE/"
	gzip -9nc deploy/packages/broker.1 >"$STAGE/broker.1.gz"
	gzip -9nc "$work/THIRD-PARTY-LICENSES" >"$STAGE/THIRD-PARTY-LICENSES.gz"
	gzip -9nc >"$STAGE/changelog.gz" <<-END
		penstock ($PACKAGE_VERSION) unstable; urgency=medium

		  * https://github.com/penstock-broker/penstock/blob/main/CHANGELOG.md

		 -- Penstock maintainers <penstock-broker@users.noreply.github.com>  $(date -uR -d "@$SOURCE_DATE_EPOCH")
	END
	find "$STAGE" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for packager in deb rpm; do
		go run "$NFPM" package --config deploy/packages/nfpm.yaml --packager "$packager" \
			--target "$out/penstock-$version-linux-$2.$packager" >/dev/null
	done
}

for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/}
	programs=$work/programs-$os-$arch name=penstock-$version-$os-$arch
	if has archives || has sbom || { has packages && [ "$os" = linux ]; }; then
		mkdir "$programs"
		for program in broker bench; do
			has archives || [ "$program" = broker ] || continue
			CGO_ENABLED=0 GOOS=$os GOARCH=$arch \
				go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$programs/" "./cmd/$program"
		done
	fi
	if has packages && [ "$os" = linux ]; then packages "$programs" "$arch"; fi
	if has archives; then archive "$programs" "$name"; fi
	if has sbom; then # from the program itself; no number and no time of its own, which would make two of one commit differ
		"$work/bin/cyclonedx-gomod" bin -json -licenses -noserial -notimestamp -version "$version" \
			-output "$out/$name.cdx.json" "$programs/broker"
	fi
	rm -rf "$programs"
done

if has chart; then
	cp -r deploy/helm/penstock "$work/penstock"
	rm -r "$work/penstock/ci"
	chart=$(package_version | tr '~' '-')
	sed -i -E "s/^version: .*/version: $chart/; s/^appVersion: .*/appVersion: \"${version#v}\"/" "$work/penstock/Chart.yaml"
	packed "$work" penstock >"$out/penstock-chart-$version.tgz"
fi
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
