# rl-operator: `make demo` shows a whole run, `make test` passes the tests, `make down` cleans up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(RL_CACHE),$(HOME)/.cache/rl-operator)
VENV := $(CACHE)/venv/bin
SOURCES := contracts operator trainer_image sampler_image console local
export PYTHONPATH := $(subst $() ,:,$(addprefix $(CURDIR)/,$(SOURCES)))

.PHONY: help venv generate check unit contract cluster test up down kubeconfig images demo

help: ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: ## Make the Python environment, outside the checkout
	@python3 -m rl_local.venv

generate: venv ## Write the files that are generated from the models
	@$(VENV)/python -m rl_contracts.spec.crd crds charts/rl-operator/charts/crds/templates

check: venv ## Lint, types, import rules, generated files, chart
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports
	$(VENV)/python -m rl_contracts.spec.crd --check crds charts/rl-operator/charts/crds/templates
	$$(python3 -m rl_local bin helm) lint --strict charts/rl-operator

unit: venv ## Pure tests
	$(VENV)/pytest tests/unit -q

contract: venv ## Stores, engine and API server as processes
	$(VENV)/pytest tests/contract -q

cluster: venv images ## The whole product on the local cluster
	$(VENV)/pytest tests/cluster -q

test: unit contract cluster ## All tiers

up: ## Start the local cluster
	@python3 -m rl_local up

down: ## Stop and remove what was started
	@python3 -m rl_local down

kubeconfig: ## Print the path to use with kubectl
	@python3 -m rl_local kubeconfig

images: up ## Build our images and push them to the local registry
	@mkdir -p out && python3 -m rl_local images --all > out/images.json.new && mv out/images.json.new out/images.json
