#!/bin/bash
# Copies the objects that the chart installs into config/helm/files. They are copies and not links, because checkouts, archives and
# artifacts of GitOps tools may leave links out.
set -euo pipefail
cd "$(dirname "$0")/../config"
rm -rf helm/files
find crd/bases policy rbac prometheus named-namespaces -name kustomization.yaml -prune -o -type f -print | while read -r file; do
  install -D -m 644 "$file" "helm/files/$file"
done
