# Tailgate. `make help` lists the targets.

# Go needs a home for its caches; cron, systemd and some runners set none.
export HOME := $(or $(HOME),$(shell getent passwd "$$(id -u)" | cut -d: -f6))

# Where Go compiles, which takes 2.6 GiB for Kubernetes, and starts what was compiled for the first time. /tmp may be too small for that,
# in memory, or mounted with noexec, and make look requires both of Go's cache. Each go command makes this folder.
# Go is asked in the checkout, because a version manager chooses it by the folder.
ASK := GOTOOLCHAIN=local GOWORK=off GOEXPERIMENT=, go env
export GOTMPDIR := $(or $(GOTMPDIR),$(shell dir=$$($(ASK) GOCACHE 2> /dev/null) && mkdir -p "$$dir" 2> /dev/null && echo "$$dir"))
# What is compiled here runs here, whatever the user set, or stored with `go env -w`, which an empty value would not replace.
export GOOS := $(shell $(ASK) GOHOSTOS 2> /dev/null)
export GOARCH := $(shell $(ASK) GOHOSTARCH 2> /dev/null)
export GOAMD64 := v1
export GOARM64 := v8.0
export GOEXPERIMENT := ,
# Up to here, make used /bin/sh: it can look at a machine without bash. This is the one in PATH, which need not be /bin/bash.
SHELL := bash
# -p: bash ignores BASH_ENV, and functions and options that the user exported.
.SHELLFLAGS := -peu -o pipefail -c
.DEFAULT_GOAL := help

# The tools are pinned in a separate module.
TOOL := go tool -modfile=hack/tools/go.mod
# Helm has its own module file.
HELM := go tool -modfile=hack/tools/helm.mod helm
YQ := go tool -modfile=hack/tools/yq.mod yq
# Your images. BENCH_IMG, that of the benchmark pods, has the name of IMG with -bench, and its tag.
IMG ?= tailgate:latest
BENCH_IMG ?= $(if $(findstring @,$(IMG)),$(error a digest names no second image: set BENCH_IMG, too),$(shell sed -E 's/(:[^:\/]*)?$$/-bench\1/' <<< '$(IMG)'))
# The programs that build and push images, and that write to the cluster of the current kubeconfig.
CONTAINER_TOOL ?= docker
KUBECTL ?= kubectl
# Additional flags of helm package, for `make build-installer`.
CHART_FLAGS ?=
# The files that the prose linter checks in `make lint`: pages, comments of Go code, and YAML.
PROSE := $(wildcard *.md) docs api cmd config controllers hack internal test
# Go compiles everything as test/localcluster does (NoDebug, no cgo): once for tests and programs, and without the path of the work
# tree, so that a new clone uses what an earlier one compiled.
COMPILE := -trimpath -gcflags=all=-dwarf=false
# Of the user's GOFLAGS, only flags that do not change what is compiled stay. test/environment decides the rest.
export GOFLAGS := $(filter -p=% -modcacherw -v -x,$(GOFLAGS)) $(COMPILE)
export CGO_ENABLED := 0
# make build records the version of the checkout if git can read it: without git, or in the checkout of another user, it builds too.
# An archive of the source that was unpacked in another repository does not get the version of that one.
STAMP = $(shell git rev-parse --verify --quiet HEAD > /dev/null 2>&1 && git ls-files --error-unmatch go.mod > /dev/null 2>&1 && \
  test -z "$$(git rev-parse --show-prefix)" && git status --porcelain > /dev/null 2>&1 || echo -buildvcs=false)
# After sudo make demo, also if it was interrupted, the owner of the checkout can build and test, too.
HAND_OVER = @test "$$(id -u)" != 0 || ! test -d bin || chown -R "$$(ls -nd . | awk '{print $$3 ":" $$4}')" bin
# The checkout has several modules, none of which belongs to a workspace of the user.
export GOWORK := off
export GO111MODULE := on
# They change what scripts print, which library a program loads, and which repository git uses.
unexport BASH_ENV ENV CDPATH LD_PRELOAD GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX GIT_COMMON_DIR GIT_OBJECT_DIRECTORY
# config/default with these images.
DEFAULT = $(TOOL) kustomize build config/default \
  | sed -e 's|image: tailgate:latest|image: $(IMG)|' -e 's|--bench-image=tailgate-bench:latest|--bench-image=$(BENCH_IMG)|'
# Installs Tailgate on a local cluster and, without -install-only, measures.
DEMO = go run ./test/cmd/demo
# Runs suites one after the other, and each failed test once more at the end. Logs are in bin/test.
SUITE = E2E_RELEASE='$(if $(RELEASE),$(abspath $(RELEASE)))' E2E_VALUES='$(if $(E2E_VALUES),$(abspath $(E2E_VALUES)))' \
  go run ./test/cmd/suite -packages='$(PACKAGES)' -focus='$(FOCUS)' -labels='$(LABELS)' -procs='$(or $(PROCS),0)'
# Variables of the user with the names of the next seven do not count, only arguments of make.
# Ginkgo label filter of the e2e specs to run: measurement, placement, faults, gate, upgrade, doctor, inspect, docs, install; empty: all
# except those of `make lab`.
LABELS =
# A folder with a release (make release) that the specs with the label install use; empty: the work tree.
RELEASE =
# The number of local clusters that run e2e specs in parallel, at most 4; empty: as many as this machine has CPUs. The specs that take
# minutes start first (SpecPriority).
PROCS = $(if $(E2E_VALUES),1)
# The suites of `make test`, and the packages and the regular expression of tests to run of a suite; empty: all.
SUITES = unit integration devices localcluster e2e
PACKAGES =
FOCUS =
# A file that describes the cluster of KUBECONFIG to the e2e specs (docs/internals/e2e.md); empty: local clusters.
E2E_VALUES =

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two commands

test e2e localcluster devices lab: export LOOK_TESTS := 1
.PHONY: look
look: SHELL := /bin/sh
look: .SHELLFLAGS := -c
look: ## List what this machine lacks for the local cluster, and change nothing.
	@sh hack/look.sh

.PHONY: demo
demo: look ## As root: start the local cluster, install Tailgate, measure, show the results; the cluster stays up.
	@# Not a second prerequisite, because with -j in MAKEFLAGS it would be built while make looks.
	$(MAKE) --no-print-directory build
	$(DEMO)

.PHONY: test
test: look ## As root: all tests, or those of SUITES; a test that fails is repeated at the end; nothing is left behind.
	go run ./test/cmd/look -install
	$(SUITE) $(SUITES)

##@ Tests

.PHONY: demo-debian13
demo-debian13: ## As root: make demo in the root file system of a new Debian 13, with its compiler; nothing is left behind.
	go run ./test/distribution trixie

.PHONY: demo-container
demo-container: look ## As root: make demo and make cluster-down in a container as Docker makes it, without Docker; nothing is left behind.
	go run ./test/container

.PHONY: interruptions
interruptions: look ## As root: each of the three demos, interrupted at five random moments, and make cluster-down: nothing is left behind.
	$(SUITE) interruptions

.PHONY: unit
unit: ## Unit tests; no root needed.
	$(SUITE) unit

.PHONY: integration
integration: ## API and controller tests against a real API server (envtest); no root needed.
	$(SUITE) integration

.PHONY: peers
peers: ## Argo Rollouts, Flagger, Prometheus and cert-manager against a real gate; no root needed. The first time they are built.
	$(SUITE) peers

.PHONY: e2e
e2e: look ## As root: tests on the local cluster, or on that of E2E_VALUES; LABELS=measurement (or placement, faults, a || b) picks specs.
	$(SUITE) e2e

.PHONY: localcluster
localcluster: look ## As root: tests of the local cluster itself: it repairs what dies, and leaves nothing behind.
	$(SUITE) localcluster

.PHONY: devices
devices: look ## As root: agents and proof on real VFs, PFs and NUMA nodes in an emulated machine (docs/internals/lab.md).
	$(SUITE) devices

.PHONY: lab
lab: look ## As root: upgrades and faults on a cluster of emulated machines (docs/internals/lab.md); LAB_COMPONENTS: a folder of your CNI and device plugins.
	$(SUITE) lab selftest

.PHONY: nightly
nightly: ## All reports in a browser, memory at scale, and alert rules with promtool, which is built the first time; no root needed.
	$(SUITE) nightly memory

.PHONY: onload
onload: ## As root: tests of the Onload in ONLOAD_DIR in an emulated machine (CONTRIBUTING.md).
	ONLOAD_DIR='$(ONLOAD_DIR)' go test -v -count=1 -timeout 120m -tags e2e ./test/lab/onload

.PHONY: lab-up
lab-up: look ## As root: start a cluster whose nodes are emulated machines with real VFs, and install Tailgate (docs/internals/lab.md).
	$(DEMO) -install-only -lab

.PHONY: lab-down
lab-down: ## As root: stop it and remove everything it made.
	go run ./test/cmd/localcluster lab-down

.PHONY: lab-status
lab-status: ## Show what of it runs and what does not.
	go run ./test/cmd/localcluster lab-status

.PHONY: pinger-arm64
pinger-arm64: ## The pinger's tests on the program for arm64, in an emulator.
	PINGER_ARCH=arm64 go test -count=1 -timeout 30m ./bench-image/pinger

.PHONY: fuzz
fuzz: ## Fuzz every parser, FUZZTIME (default 30s) each.
	hack/fuzz.sh $${FUZZTIME:-30s}

.PHONY: bench
bench: look ## As root: compare the pinger with other tools, then time the steps between two runs; SFNETTEST_BIN names the sfnt tools.
	$(MAKE) --no-print-directory build
	go run ./test/cmd/bench
	$(DEMO) -install-only
	go run ./test/cmd/bench -timeline "$$(go run ./test/cmd/localcluster kubeconfig)"

##@ Your cluster, which the current kubeconfig names

.PHONY: install
install: ## Install the CRDs.
	$(TOOL) kustomize build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: ## Delete the CRDs, and with them all benchmarks, results and gates. While a manager runs, `make undeploy` comes first.
	$(TOOL) kustomize build config/crd | $(KUBECTL) delete --ignore-not-found=$(or $(ignore-not-found),false) --timeout=5m -f -

.PHONY: deploy
deploy: ## Install Tailgate with the images IMG and BENCH_IMG, which the nodes must be able to pull.
	$(DEFAULT) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove Tailgate with all benchmarks, results and gates.
	@# In this order, because only the manager restores the nodes of gates, and the garbage collector needs the CRDs (docs/install.md).
	if test -n "$$($(KUBECTL) get crd latencygates.tailgate.dev --ignore-not-found -o name)"; then \
	  $(KUBECTL) delete latencygates.tailgate.dev --all --timeout=5m; \
	  $(KUBECTL) delete latencymatrices.tailgate.dev,latencybenchmarks.tailgate.dev --all-namespaces --all --cascade=foreground --timeout=5m; \
	fi
	$(DEFAULT) | $(KUBECTL) delete --ignore-not-found=$(or $(ignore-not-found),false) --timeout=5m -f -

##@ The local cluster

.PHONY: cluster-up
cluster-up: look ## As root: start the two-node cluster; no-op when it runs.
	go run ./test/cmd/localcluster up

.PHONY: cluster-deploy
cluster-deploy: look ## As root: build the images and install Tailgate on the local cluster, started if needed.
	$(MAKE) --no-print-directory build
	$(DEMO) -install-only

.PHONY: cluster-down
cluster-down: ## As root: stop it and remove everything it made, and what interrupted runs of other targets left.
	@# Each, whatever the others say.
	left=''; for command in 'distribution -remove' 'container -remove' 'cmd/localcluster down'; do go run ./test/$$command || left=1; done; test -z "$$left"
	$(HAND_OVER)

.PHONY: cluster-status
cluster-status: ## Show what runs and what does not.
	go run ./test/cmd/localcluster status

##@ Build

.PHONY: build
build: ## Build the commands into bin/.
	go build $(STAMP) -ldflags "-s -w" -o bin/ ./cmd/...
	$(HAND_OVER)

.PHONY: man
man: ## Write the man pages of kubectl-tailgate into bin/man/man1.
	go run ./hack/man bin/man/man1

.PHONY: site
site: ## Write the site of docs/ into bin/site, and check its links and its accessibility in a browser.
	go tool -modfile=hack/tools/hugo.mod hugo --source hack/site --destination $(CURDIR)/bin/site --cleanDestinationDir --noBuildLock --quiet
	go test -count=1 -tags site ./test/site

.PHONY: images
images: ## Build the images without an engine or a registry, as tar files.
	go run ./test/cmd/images

.PHONY: docker-build
docker-build: ## Build the images IMG and BENCH_IMG with Docker, or with the program that CONTAINER_TOOL names.
	$(CONTAINER_TOOL) build -t '$(IMG)' .
	$(CONTAINER_TOOL) build -t '$(BENCH_IMG)' -f bench-image/Dockerfile .

.PHONY: docker-push
docker-push: ## Push them.
	$(CONTAINER_TOOL) push '$(IMG)'
	$(CONTAINER_TOOL) push '$(BENCH_IMG)'

.PHONY: build-installer
build-installer: ## Write bin/install.yaml, all in one file, for IMG and BENCH_IMG, and the Helm chart and the OLM bundle into bin/.
	mkdir -p bin
	$(DEFAULT) > bin/install.yaml
	$(HELM) package config/helm --destination bin $(CHART_FLAGS)
	hack/olm.sh bin/install.yaml "$(or $(VERSION),$$(sed -n 's/^appVersion: //p' config/helm/Chart.yaml))" bin/bundle

.PHONY: release
release: export GOFLAGS := # A release depends only on the commit.
release: ## Build all that a release publishes into dist/, for VERSION=vX.Y.Z; KEY names a private key of cosign to sign with.
	hack/release/release.sh '$(VERSION)' '$(if $(KEYLESS),keyless,$(KEY))'

.PHONY: publish
publish: ## In the release workflow: push the images in dist/, sign them, and create the release VERSION on GitHub.
	echo "$$GH_TOKEN" | skopeo login ghcr.io --username "$$GITHUB_ACTOR" --password-stdin
	mkdir -p bin
	for image in tailgate tailgate-bench; do \
	  skopeo copy --all --preserve-digests --digestfile=bin/digest oci-archive:dist/$$image.oci.tar docker://ghcr.io/tailgate-dev/$$image:$(VERSION); \
	  DOCKER_CONFIG=$$(dirname "$$REGISTRY_AUTH_FILE") go tool -modfile=hack/tools/cosign.mod cosign sign --yes ghcr.io/tailgate-dev/$$image@$$(cat bin/digest); \
	done
	gh release create '$(VERSION)' --verify-tag --title '$(VERSION)' --notes 'See CHANGELOG.md and docs/internals/releases.md.' $(if $(findstring -,$(VERSION)),--prerelease) dist/*

.PHONY: manifests
manifests: ## Generate the CRDs and RBAC.
	$(TOOL) controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	for crd in config/crd/bases/*.yaml; do $(YQ) --inplace --yaml-compact-seq-indent --from-file=hack/crd.yq "$$crd"; done
	$(TOOL) controller-gen rbac:roleName=tailgate-manager paths=./controllers paths=./controllers/benchmark paths=./controllers/matrix paths=./internal/observe output:rbac:dir=config/rbac
	$(TOOL) controller-gen rbac:roleName=tailgate-manager-gates paths=./controllers/gate output:rbac:dir=config/rbac/gates
	hack/chart-files.sh

.PHONY: generate
generate: manifests ## Generate all that is generated: the CRDs, RBAC, deepcopy functions, the API's reference, the report's page and rules of the linter.
	$(TOOL) controller-gen object paths=./api/...
	$(TOOL) crd-ref-docs --log-level=ERROR --source-path=api/v1alpha1 --config=hack/api-docs.yaml --renderer=markdown --output-path=docs/api.md
	go tool -modfile=hack/tools/templ.mod templ generate -f internal/htmlreport/page.templ -stdout > internal/htmlreport/zz_generated.page.go
	$(YQ) --inplace --from-file=hack/depguard.yq .golangci.yml

.PHONY: lint
lint: ## Run the linters.
	$(TOOL) golangci-lint run
	$(TOOL) golangci-lint run --build-tags e2e,nightly ./test/... ./internal/htmlreport
	CGO_ENABLED=1 go tool -modfile=hack/tools/vale.mod vale --config=hack/vale/vale.ini --glob='!{hack/vale,test/integration/testdata,config/helm/files}/**' --output=line $(PROSE)
	$(TOOL) actionlint

.PHONY: vulnerabilities
vulnerabilities: ## Report known vulnerabilities in code that the programs reach; it needs the network.
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

.PHONY: verify
verify: generate ## Regenerate and fail on any difference; check formatting, modules and manifests.
	@files=$$(gofmt -l api bench-image cmd config controllers hack internal test); \
	test -z "$$files" || { echo "$$files"; echo "run gofmt -w on these"; exit 1; }
	go vet ./... && go vet -tags e2e,nightly ./...
	go mod tidy -diff
	$(MAKE) --no-print-directory build-installer
	$(HELM) lint --strict --quiet config/helm
	@# The validator reports errors, but succeeds.
	said=$$(go tool -modfile=hack/tools/olm.mod operator-verify manifests --object_validate bin/bundle 2>&1); \
	echo "$$said"; ! grep -q level=error <<< "$$said"
	$(TOOL) kustomize build config/prometheus > /dev/null
	$(TOOL) kustomize build test/localcluster/overlay-lab > /dev/null
	git diff --exit-code -- api config docs/api.md internal/htmlreport/zz_generated.page.go
