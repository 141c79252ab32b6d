# rl-operator: `make demo` shows a whole run, `make test` passes the tests, `make down` cleans up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ifneq ($(words $(CURDIR)),1)
  $(error the path of this checkout has a space, which make cannot handle: $(CURDIR); move it to a path without spaces)
endif

PYTHON ?= python3
CACHE := $(or $(RL_CACHE),$(HOME)/.cache/rl-operator)
VENV := $(CACHE)/venv/bin
SOURCES := contracts operator trainer_image sampler_image console local
# Where a machine sets this, every process that a test starts compiles the checkout again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPATH := $(subst $() ,:,$(addprefix $(CURDIR)/,$(SOURCES)))

.PHONY: help venv generate check docs kubectl-rl unit unit-operator unit-trainer unit-others servers browser contract contract-objects contract-process contract-stores contract-console contract-sampler contract-trainer cluster test soak soak-list bench up down kubeconfig images sbom assets demo

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: ## Make the Python environment, outside the checkout
	@$(PYTHON) -m rl_local.venv

GENERATED := crds charts/rl-operator/charts/crds/templates --reference docs/reference/fields.md

COMMANDS := docs/reference/kubectl-rl.md

generate: venv ## Write the files that are generated from the models and commands
	@$(VENV)/python -m rl_contracts.spec.schema.crd $(GENERATED)
	@$(VENV)/python -m rl_console.reference $(COMMANDS)
	@$(VENV)/python charts/grafana
	@$(VENV)/python -m tests.unit.docs.capacity_page

check: venv ## Lint, types, import rules, generated files, docs, chart
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports
	$(VENV)/python -m rl_contracts.spec.schema.crd --check $(GENERATED)
	$(VENV)/python -m rl_console.reference --check $(COMMANDS)
	$(VENV)/python charts/grafana --check
	$$($(PYTHON) -m rl_local bin helm) lint --strict charts/rl-operator
	$$($(PYTHON) -m rl_local bin actionlint) .github/workflows/*.yml
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict --quiet

kubectl-rl: ## Make out/kubectl-rl, the console as a single file; PLATFORM=linux/arm64 for another machine
	@$(PYTHON) -m rl_local.kubectl_rl --out out/kubectl-rl $(if $(PLATFORM),--platform $(PLATFORM))

docs: venv ## Build the documentation as a site into out/site
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict

UNIT_OPERATOR := rl_operator rl_contracts
UNIT_TRAINER := rl_trainer

unit: venv ## Pure tests, in three lanes side by side
	@$(MAKE) --no-print-directory -j3 --output-sync=target $(addprefix unit-,operator trainer others)

unit-operator:
	$(VENV)/pytest $(addprefix tests/unit/,$(UNIT_OPERATOR)) -q

unit-trainer:
	$(VENV)/pytest $(addprefix tests/unit/,$(UNIT_TRAINER)) -q

unit-others:
	$(VENV)/pytest tests/unit $(addprefix --ignore=tests/unit/,$(UNIT_OPERATOR) $(UNIT_TRAINER)) -q

SERVERS := kubernetes etcd store minio helm

servers: ## Build the servers that contract tests start; a test's time limit must not hold a build
	@for name in $(SERVERS); do $(PYTHON) -m rl_local bin $$name > /dev/null; done

browser: ## Install Debian's Chromium, which tests drive, unless a browser of its kind is there
	@command -v chromium chromium-headless-shell google-chrome > /dev/null || $(PYTHON) -m rl_local packages chromium

contract: venv servers browser ## Stores, engine and API server as processes; six lanes side by side
	@$(MAKE) --no-print-directory -j6 --output-sync=target $(addprefix contract-,objects process stores console sampler trainer)

contract-objects:
	$(VENV)/pytest $(addprefix tests/contract/rl_operator/,jobs pools) -q

contract-process:
	$(VENV)/pytest $(addprefix tests/contract/rl_operator/,api process) tests/contract/rl_local -q

contract-stores:
	$(VENV)/pytest $(addprefix tests/contract/,rl_contracts policy_broadcast turns) -q

contract-console:
	$(VENV)/pytest $(addprefix tests/contract/,rl_console rl_operator/viewers rl_sampler/tools) -q

contract-sampler:
	$(VENV)/pytest tests/contract/rl_sampler --ignore=tests/contract/rl_sampler/tools -q

contract-trainer:
	$(VENV)/pytest tests/contract/rl_trainer -q

cluster: venv images ## The whole product on the local cluster
	$(VENV)/pytest tests/cluster -q

test: unit contract cluster ## All tiers

SOAK := $(if $(SHARD),--shard $(SHARD)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))
CLUSTERLESS := properties contract stores policies trainer meshes turns sampler operator console store-server

BROWSERLESS := properties stores policies trainer meshes turns operator store-server

soak: venv $(if $(filter $(BROWSERLESS),$(SHARD)),,browser) $(if $(filter $(CLUSTERLESS),$(SHARD)),,images) ## Long faults: SHARD=operator-cluster SEED=7 MINUTES=20, or all; the local cluster is replaced
	$(VENV)/python -m tests.soak $(SOAK)

soak-list: venv ## The shards of the soak
	@$(VENV)/python -m tests.soak --list

BENCHMARKS := $(subst /,.,$(basename $(filter-out %/__init__.py,$(wildcard benchmarks/console.py \
  $(addprefix benchmarks/,$(addsuffix /*.py,broadcast operator sampler stores trainer))))))
QUICK ?=

bench: venv ## Every benchmark that needs no cluster, in turn; QUICK=--quick for less of each
	@for name in $(BENCHMARKS); do $(VENV)/python -m $$name $(QUICK); done

up: ## Start the local cluster
	@$(PYTHON) -m rl_local up

down: ## Stop and remove what was started
	@$(PYTHON) -m rl_local down

kubeconfig: ## Print the path to use with kubectl
	@$(PYTHON) -m rl_local kubeconfig

# REGISTRY names a registry of yours; BUILDER=docker, podman, nerdctl or buildah, PLATFORMS=linux/amd64,linux/arm64,
# IMAGES="operator trainer", TAG=…, PUSH=0 and BUILD_OPTIONS="…" (for the build command) are optional.
PUBLISH = $(PYTHON) -m rl_local.publish --registry "$(REGISTRY)" --tag "$(TAG)" --platforms "$(PLATFORMS)" \
  --builder "$(BUILDER)" --options "$(BUILD_OPTIONS)" $(if $(filter 0,$(PUSH)),--no-push) $(if $(PUSHED),--pushed)

# From the environment only for `make images`: `make test` builds the images too, and must not publish them.
PUBLISHED := $(if $(findstring command,$(origin REGISTRY))$(filter images,$(MAKECMDGOALS)),$(REGISTRY))

images: ## Build our images beside starting the cluster; with REGISTRY=… for a registry of yours, without root
	@mkdir -p out
ifneq ($(PUBLISHED),)
	@$(PUBLISH) $(IMAGES) > out/images.json.new
else
	@$(PYTHON) -m rl_local up --all-images > out/images.json.new
endif
	@mv out/images.json.new out/images.json
	@$(if $(PUBLISHED),cat out/images.json)

sbom: ## List what the images of REGISTRY hold, in CycloneDX, into out/sbom; needs the builder that built them
	@test -n "$(REGISTRY)" || { echo "REGISTRY=<host/prefix> must say which images"; exit 2; }
	@$(PYTHON) -m rl_local.sbom --registry "$(REGISTRY)" $(if $(TAG),--tag "$(TAG)") --builder "$(BUILDER)" $(IMAGES)

assets: ## Wheel, CRDs and JSON Schemas of a release, into out/assets
	@rm -rf out/assets && mkdir -p out/assets
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir out/assets .
	@cp crds/*.yaml out/assets
	@$(PYTHON) -m venv out/assets/.venv
	@out/assets/.venv/bin/pip install --quiet --constraint constraints.txt "$$(echo out/assets/*.whl)"
	@out/assets/.venv/bin/kubectl-rl --help > /dev/null
	@env -u PYTHONPATH out/assets/.venv/bin/python -m rl_contracts.spec.schema.crd out/assets --json-schemas out/assets
	@rm -rf out/assets/.venv
	@ls out/assets

STARTED := $(shell date +%s)
STORAGE_CLASS ?= $(if $(CONTEXT),,local)
installed = $(shell type $(1) > /dev/null 2>&1 && echo $(1))
local_bin = "$$($(PYTHON) -m rl_local bin $(1))"
KUBECTL ?= $(or $(if $(CONTEXT),$(call installed,kubectl)),$(call local_bin,kubectl))
HELM ?= $(or $(if $(CONTEXT),$(call installed,helm)),$(call local_bin,helm))
TRAINING_OPERATOR = github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3
DEMO = demo --images out/images.json --cache $(CACHE)/demo --started-at $(STARTED) \
  --storage-class "$(STORAGE_CLASS)"
DEMO_THERE = python="$$($(PYTHON) -m rl_local.venv --demo)"; "$$python" -m rl_console --kubectl $(KUBECTL) --helm $(HELM) \
  --context $(CONTEXT) $(DEMO)

demo: ## Run the example and show what it learned; CONTEXT=… REGISTRY=… [PUSHED=1] on a cluster of yours, without root
ifdef CONTEXT
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or later is needed; name it: PYTHON=python3.12")'
	@test -n "$(REGISTRY)" || { echo "REGISTRY=<host/prefix> must say where the images are; PUSHED=1 if they are there already"; exit 2; }
	@$(DEMO_THERE) --check
	@$(MAKE) --no-print-directory images REGISTRY="$(REGISTRY)"
	@$(KUBECTL) --context $(CONTEXT) get crd pytorchjobs.kubeflow.org > /dev/null 2>&1 \
	  || { $(KUBECTL) --context $(CONTEXT) apply --server-side -k "$(TRAINING_OPERATOR)" \
	  && $(KUBECTL) --context $(CONTEXT) -n kubeflow rollout status deployment/training-operator --timeout=300s; }
	@$(DEMO_THERE)
else
	@$(MAKE) --no-print-directory -j2 venv images REGISTRY=
	@$(VENV)/python -m rl_console --kubectl $(KUBECTL) --helm $(HELM) \
	  --kubeconfig "$$($(PYTHON) -m rl_local kubeconfig)" $(DEMO)
endif
