# rl-operator: `make demo` shows a whole run, `make test` passes the tests, `make down` cleans up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(RL_CACHE),$(HOME)/.cache/rl-operator)
VENV := $(CACHE)/venv/bin
SOURCES := contracts operator trainer_image sampler_image console local
export PYTHONPATH := $(subst $() ,:,$(addprefix $(CURDIR)/,$(SOURCES)))
LOCAL := PYTHONPATH=$(CURDIR)/local python3 -m rl_local

.PHONY: help venv generate check unit contract cluster chaos test soak up down kubeconfig images demo

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
	$(VENV)/python -m rl_contracts.spec.crd --check crds
