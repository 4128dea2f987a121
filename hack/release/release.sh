#!/bin/bash
# Builds everything that a release publishes into dist/, from the commit that is checked out, without publishing it:
#
#   hack/release/release.sh v0.1.0-rc.1 [KEY | keyless]
#
# KEY is cosign's private key, whose password is in COSIGN_PASSWORD; keyless: the identity of the workflow that runs this. Without
# either, nothing is signed. Two runs on one commit give the same files, except for the signatures (*.sigstore.json).
set -euo pipefail
export LC_ALL=C

# registry is where the release workflow publishes the images, and source the repository's address.
registry=ghcr.io/tailgate-dev
source=https://github.com/tailgate-dev/tailgate

fail() { echo "release: $*" >&2; exit 1; }
sum() { sha256sum "$1" | cut -d ' ' -f 1; }
# The tools have module files of their own.
tool() { go tool -n -modfile="hack/tools/$1.mod" "$1"; }
# valid reports whether a version can be a tag.
valid() { [[ $1 =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$ ]]; }

# checkout clones the commit, so that uncommitted changes do not get into the release, and tags the clone: Go records the tag in the
# programs.
checkout() {
  local changed tagged
  changed=$(git status --porcelain)
  test -z "$changed" || fail "commit or remove these first:"$'\n'"$changed"
  tagged=$(git tag --list "$version" --format='%(objectname) %(*objectname)')
  case "$tagged" in "" | *"$commit"*) ;; *) fail "the tag $version exists and is not of the commit $commit" ;; esac
  git clone --quiet --shared --no-tags . "$clone"
  git -C "$clone" checkout --quiet --detach "$commit"
  git -C "$clone" tag "$version"
  rm -rf "$out"
  mkdir -p "$out"
}

# plugin builds kubectl-tailgate with GoReleaser.
plugin() {
  local goreleaser
  goreleaser=$(tool goreleaser)
  (cd "$clone" && "$goreleaser" release --clean --timeout=3h --config=hack/release/goreleaser.yaml --skip=publish,announce,sbom,sign)
  mv "$clone"/dist/*.tar.gz "$out"
  rm -r "$clone/dist"
}

# images builds the images for all architectures, and writes their names and digests to $digests.
images() {
  (cd "$clone" && go run ./test/cmd/images -out "$out" -registry "$registry" -release "$version" -revision "$commit" -source "$source") > "$digests"
}

# digest and reference return the digest of an image and the reference to it.
digest() { sed -n "s/^$1 //p" "$digests"; }
reference() { echo "$registry/$1:$version@$(digest "$1")"; }

# manifests writes install.yaml, the chart and the OLM bundle, with the images referenced by digest.
manifests() {
  local name number=${version#v} values=$clone/config/helm/values.yaml
  for name in tailgate tailgate-bench; do
    sed -i "/^  registry: \"\"\$/{N;N;N;s|^.*\n  repository: $name\n  tag: latest\n  digest: \"\"\$|\
  registry: $registry\n  repository: $name\n  tag: $version\n  digest: $(digest "$name")|}" "$values"
    test "$(grep -c "^  digest: $(digest "$name")\$" "$values")" = 1 || fail "config/helm/values.yaml does not name the image $name once"
  done
  make -C "$clone" build-installer IMG="$(reference tailgate)" BENCH_IMG="$(reference tailgate-bench)" VERSION="$version" \
    CHART_FLAGS="--version $number --app-version $version"
  mv "$clone/bin/install.yaml" "$out"
  mkdir "$clone/bin/chart"
  tar --extract --file="$clone/bin/tailgate-$number.tgz" --directory="$clone/bin/chart"
  archive "$clone/bin/chart" tailgate "$out/tailgate-$number.tgz"
  archive "$clone/bin" bundle "$out/olm-bundle-$number.tgz"
}

# archive writes a folder of another into an archive that depends only on the content of the files.
archive() {
  tar --create --directory="$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=ustar "$2" | gzip -9n > "$3"
}

# krew fills in the manifest of the plugin, without the comment about the placeholders.
krew() {
  local file platform text
  text=$(sed -n "/^apiVersion:/,\$p" "$clone/hack/krew/tailgate.yaml")
  text=${text//VERSION/$version}
  for file in "$out"/kubectl-tailgate_*.tar.gz; do
    platform=$(basename "${file#*kubectl-tailgate_}" .tar.gz)
    text=${text//SHA256_${platform^^}/$(sum "$file")}
  done
  case "$text" in *SHA256_*) fail "hack/krew/tailgate.yaml has a platform that was not built" ;; esac
  echo "$text" > "$out/krew.yaml"
}

# sboms writes the SBOMs of the archives and the images.
sboms() {
  local syft yq file name arch
  syft=$(tool syft) yq=$(tool yq)
  for file in "$out"/*.tar.gz; do
    sbom "$(basename "$file" .tar.gz)" "file:$file"
  done
  for name in tailgate tailgate-bench; do
    for arch in amd64 arm64; do
      sbom "${name}_linux_$arch" --platform="linux/$arch" "oci-archive:$out/$name.oci.tar"
    done
  done
}

# sbom writes one SBOM in SPDX format, with the time of the commit instead of the time and the random number that syft adds.
sbom() {
  local name=$1 found=$tmp/$1.json
  shift
  "$syft" scan --quiet --output=spdx-json="$found" --source-name="$name" --source-version="$version" "$@"
  test "$("$yq" '.packages | length' "$found")" -ge 2 || fail "syft found nothing in $name"
  CREATED=$(TZ=UTC git -C "$clone" show --no-patch --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd "$commit") \
  ADDRESS=$source/releases/download/$version/$name.spdx.json \
    "$yq" --output-format=json --indent=0 '.creationInfo.created = strenv(CREATED) | .documentNamespace = strenv(ADDRESS)' "$found" \
    > "$out/$name.spdx.json"
}

# provenance writes the sources of the artifacts and the images, as an in-toto statement of SLSA's type, and the checksums of all files.
provenance() {
  local builder=local subjects sums # local: a rehearsal on a developer's machine
  test "$key" != keyless || builder=$source/.github/workflows/release.yml@refs/tags/$version
  subjects=$({
    (cd "$out" && sha256sum -- *) | awk '{print $2, $1}'
    sed "s|^\([^ ]*\) sha256:|$registry/\1 |" "$digests"
  } | sort | awk '{printf "%s    {\"name\": \"%s\", \"digest\": {\"sha256\": \"%s\"}}", (NR > 1 ? ",\n" : ""), $1, $2}')
  cat > "$out/provenance.intoto.json" << END
{
  "_type": "https://in-toto.io/Statement/v1",
  "predicateType": "https://slsa.dev/provenance/v1",
  "subject": [
$subjects
  ],
  "predicate": {
    "buildDefinition": {
      "buildType": "$source/blob/$version/docs/internals/releases.md",
      "externalParameters": {"version": "$version"},
      "internalParameters": {"go": "$(go env GOVERSION)"},
      "resolvedDependencies": [{"uri": "git+$source@refs/tags/$version", "digest": {"gitCommit": "$commit"}}]
    },
    "runDetails": {"builder": {"id": "$builder"}}
  }
}
END
  sums=$(cd "$out" && sha256sum -- *)
  echo "$sums" > "$out/checksums.txt"
}

# sign signs the checksums, which cover all files, and the provenance.
sign() {
  local cosign name options=()
  test -n "$key" || { echo "release: nothing is signed, because there is neither KEY nor keyless" >&2; return; }
  cosign=$(tool cosign)
  # Without a transparency log: a rehearsal must not be published.
  test "$key" = keyless || options=(--key="$key" --use-signing-config=false --tlog-upload=false)
  for name in checksums.txt provenance.intoto.json; do
    (cd "$out" && "$cosign" sign-blob --yes --bundle="$name.sigstore.json" "${options[@]}" "$name" && chmod 644 "$name.sigstore.json")
  done
}

main() {
  local step
  version=${1:-} key=${2:-}
  valid "$version" || fail "'$version' is not a version such as v0.1.0 or v0.1.0-rc.1; give it as the first argument"
  test "$key" = keyless || test -z "$key" || key=$(realpath "$key")
  cd "$(dirname "${BASH_SOURCE[0]}")/../.."
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  commit=$(git rev-parse HEAD) out=$PWD/dist clone=$tmp/tailgate digests=$tmp/digests
  umask 022
  for step in checkout plugin images manifests krew sboms provenance sign; do
    echo "release: $step" >&2
    "$step"
  done
}

if test "${BASH_SOURCE[0]}" = "$0"; then main "$@"; fi
