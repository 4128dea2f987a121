#!/bin/bash
# Writes the bundle for the Operator Lifecycle Manager. It takes roles, CRDs and the Deployment from the manifests in one file, and
# names and descriptions from the chart:
#
#   hack/olm.sh bin/install.yaml v0.1.0 bin/bundle
set -euo pipefail
if test $# != 3; then echo "usage: hack/olm.sh INSTALL_YAML VERSION DIRECTORY" >&2; exit 1; fi
manifests=$(realpath "$1") dir=$(realpath -m "$3")
cd "$(dirname "$0")/.."
yq=$(go tool -n -modfile=hack/tools/yq.mod yq)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export VERSION=${2#v} ALL=$work/all.yaml SAMPLES=$work/samples.yaml ACCOUNT
fail() { echo "olm: $*" >&2; exit 1; }

"$yq" ea '[select(. != null)]' "$manifests" > "$ALL"
# The examples that OLM's consoles show.
(cd config/samples && "$yq" ea '[select(.apiVersion == "tailgate.dev/*")]' first.yaml all-pairs.yaml gates/gate.yaml) > "$SAMPLES"
ACCOUNT=$("$yq" '[.[] | select(.kind == "*RoleBinding") | .subjects[].name] | unique | join(" ")' "$ALL")
case "$ACCOUNT" in "" | *" "*) fail "the bindings are not of one service account: $ACCOUNT" ;; esac
# Each binding is of one role that is there.
unbound=$("$yq" '. as $all | .[] | select(.kind == "*RoleBinding") | . as $b |
  select(([$all[] | select(.kind == $b.roleRef.kind and .metadata.name == $b.roleRef.name)] | length) != 1) | .metadata.name' "$ALL")
test -z "$unbound" || fail "no role of $unbound"
counts=$("$yq" '[.[] | select(.kind == "Deployment") | .spec.template.spec.containers] | (length, (.[0] | length), ([.[0][0].args[] | select(test("^--bench-image=."))] | length))' "$ALL")
test "$counts" = $'1\n1\n1' || fail "not one Deployment of one container with one --bench-image, but" $counts

rm -rf "$dir"
mkdir -p "$dir/manifests" "$dir/metadata"
"$yq" -n --from-file config/olm/csv.yq > "$dir/manifests/tailgate.clusterserviceversion.yaml"
# OLM makes the manager's account, its roles and its Deployment from the ClusterServiceVersion, sets the namespace, and accepts neither
# NetworkPolicies nor policies of admission.
"$yq" '[.[] | select(.kind == "*RoleBinding") | .roleRef | .kind + " " + .name] as $bound | map(
  select(.kind != "*RoleBinding" and (.kind | test("^(Namespace|NetworkPolicy|Deployment|ValidatingAdmissionPolicy.*)$") | not)) |
  select(.kind != "ServiceAccount" or .metadata.name != strenv(ACCOUNT)) |
  select((.kind + " " + .metadata.name) as $own | $bound | any_c(. == $own) | not) | del(.metadata.namespace))' "$ALL" > "$work/beside.yaml"
(cd "$dir/manifests" && "$yq" --split-exp '.metadata.name + "." + (.kind | downcase) + ".yaml"' '.[]' "$work/beside.yaml")
# Two objects of one name would be one file.
test "$(find "$dir/manifests" -type f | wc -l)" = "$(($("$yq" length "$work/beside.yaml") + 1))" || fail "two objects have one name"
cp config/olm/annotations.yaml "$dir/metadata/annotations.yaml"
{
  echo "FROM scratch"
  "$yq" '.annotations[] | "LABEL " + key + "=" + .' config/olm/annotations.yaml
  printf 'COPY manifests /manifests/\nCOPY metadata /metadata/\n'
} > "$dir/bundle.Dockerfile"
