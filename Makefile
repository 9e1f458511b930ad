# A short front for CMake's presets. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build
.PHONY: test-deploy asan-parsers run program test test-openai test-neon test-web build debug models asan tsan fuzz format lint clean install help deps

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 180
export CARAT_MODELS ?= $(HOME)/.cache/carat/models

# Programs that run whole models. Under a sanitizer the real ones would take many minutes, so there they see no model
# folder: their tests of real models are skipped by name, those of tiny models run.
MODEL_TESTS := ^(model|engine|metrics|server|cli|api)_test$$
# Test programs of the folders that read files, texts, grammars and listings.
PARSERS := base os memory quant arch formats text grammar planner hub sampling
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
NO_MODELS := CARAT_MODELS=/nonexistent
# Older sanitizer runtimes fail on kernels with much address randomisation; without the right to turn it off, try so.
STEADY := $(shell setarch -R true 2> /dev/null && echo setarch -R)
# One progress line on a terminal, silence in a log.
QUIET := $(shell test -t 2 || echo -- --quiet)
SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' 'fuzz/*.cpp' 'include/*.h')

run: program models ## install what is missing, build, fetch the model, write a few words and the memory table
	build/carat run gemma3-270m -p "Once upon a time" -n 48 --temp 0 --memory 420M --stats

# Without the models their tests are skipped by name; in CI a failed fetch is a failure. What of deploy/ needs nginx or
# PyYAML is skipped by name without them: make test-deploy.
test: build ## everything: layers, unit, cases, real models; then the byte parsers under ASan and UBSan
	$(MAKE) models || test -z "$${CI:-}"
	ctest --preset release
	$(MAKE) asan-parsers

test-deploy: program models ## deploy/ with what it is for: nginx before two workers, manifests, the unit
	@tools/install_deps.sh deploy
	python3 tests/deploy/deploy_test.py --carat build/carat

# openai, jsonschema and lm-eval go into a folder of their own; nothing of it is needed to build or run carat.
test-openai: program models ## the real openai package, curl and lm-eval against the real models (needs the Python index)
	test -x build/openai/bin/python || python3 -m venv build/openai
	build/openai/bin/pip install --quiet --disable-pip-version-check openai jsonschema transformers 'lm-eval[api]'
	build/openai/bin/python tests/server/openai_suite.py build/carat

test-neon: ## the kernels of 64-bit ARM, cross-built, against ref under qemu-user
	@tools/install_deps.sh build arm64
	@JOBS=$(JOBS) tools/test_neon.sh

WEB_TESTS := $(HOME)/.cache/carat/venv-web
test-web: program ## the chat page in a real Chromium; screenshots in build/web
	@tools/install_deps.sh web
	@test -x $(WEB_TESTS)/bin/pytest || python3 -m venv $(WEB_TESTS)
	@$(WEB_TESTS)/bin/pip -q install --disable-pip-version-check -r tests/web/requirements.txt
	$(WEB_TESTS)/bin/pytest -q tests/web

program: deps build/build.ninja ## build/carat alone
	@cmake --build --preset release --target carat -j $(JOBS) $(QUIET)

build: deps build/build.ninja ## build/carat and the tests
	@cmake --build --preset release -j $(JOBS) $(QUIET)

debug: deps build-debug/build.ninja ## build-debug/carat and the tests, without optimisation
	@cmake --build --preset debug -j $(JOBS) $(QUIET)

models: deps ## fetch gemma3-270m and smollm2-135m-instruct into $CARAT_MODELS
	@tools/get_models.py

asan: deps build-asan/build.ninja ## tests under AddressSanitizer and UBSan; real models only have their bytes parsed
	@cmake --build --preset asan -j $(JOBS) $(QUIET)
	$(NO_MODELS) $(STEADY) ctest --preset asan -j $(JOBS) -R '$(MODEL_TESTS)' --no-tests=ignore
	$(STEADY) ctest --preset asan -j $(JOBS) -E '$(MODEL_TESTS)'

asan-parsers: deps build-asan/build.ninja ## of these, what reads bytes from outside: a third of the building
	@cmake --build --preset asan -j $(JOBS) --target $(PARSERS:%=%_test) $(QUIET)
	$(STEADY) ctest --preset asan -j $(JOBS) -R '^($(subst $(SPACE),|,$(strip $(PARSERS))))_test$$'

tsan: deps build-tsan/build.ninja ## tests under ThreadSanitizer, without those of real models
	@cmake --build --preset tsan -j $(JOBS) $(QUIET)
	$(NO_MODELS) $(STEADY) ctest --preset tsan

fuzz: ## each fuzz target for FUZZ_SECONDS (180); finds go to build-fuzz/finds
	@tools/install_deps.sh build clang
	@$(MAKE) build-fuzz/build.ninja
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz/all $(QUIET)
	@tools/run_fuzzers.sh $(FUZZ_SECONDS)

format: ## clang-format all C++ files
	@tools/install_deps.sh format
	clang-format-16 -i $(SOURCES)

lint: build ## layers, formatting, clang-tidy
	@tools/install_deps.sh format
	tools/check_layers.py
	clang-format-16 --dry-run -Werror $(SOURCES)
	clang-tidy-16 --quiet -p build $(filter src/%.cpp,$(SOURCES))

install: build ## program, library, man page, completions: into PREFIX (/usr/local), below DESTDIR if set
	cmake --install build --prefix $(PREFIX)

clean: ## remove the build folders; models and downloads stay
	rm -rf build build-debug build-asan build-tsan build-fuzz build-arm64

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

deps:
	@tools/install_deps.sh build

build/build.ninja: PRESET := release
build-debug/build.ninja: PRESET := debug
build-asan/build.ninja: PRESET := asan
build-tsan/build.ninja: PRESET := tsan
build-fuzz/build.ninja: PRESET := fuzz
build/build.ninja build-debug/build.ninja build-asan/build.ninja build-tsan/build.ninja build-fuzz/build.ninja: CMakePresets.json | deps
	@cmake --preset $(PRESET) --log-level=WARNING > /dev/null
	@touch $@
