# The front door; the build itself is CMake (see CMakePresets.json).
#
#   TARGET=operator   build and check without LibTorch
#   PACKAGES=skip     do not look for Debian packages
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test sanitize sanitize-threads check bench experiment compare soak build clean packages format image \
  cluster cluster-build cluster-stop bench-operator

# Objects in the compiler cache serve any checkout.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Scripts leave no compiled copies in the source tree.
export PYTHONDONTWRITEBYTECODE := 1

programs := trainyard trainyard-agent trainyard-runtime
dev := build/dev
configure := cmake --log-level=WARNING
ifeq ($(TARGET),operator)
programs := trainyard trainyard-agent
dev := build/operator
flags := -DTRAINYARD_WITH_TORCH=OFF
else ifneq ($(TARGET),)
$(error TARGET=$(TARGET): expected operator)
endif

cluster := python3 tests/cluster/cluster.py
version := $(shell sed -n 's|^project.trainyard VERSION \([0-9.]*\).*|\1|p' CMakeLists.txt)

help:
	@echo "make demo     train on Fashion-MNIST on this machine: 2 parameter servers, 2 workers"
	@echo "make test     build everything and run every test that needs no GPU"
	@echo "make sanitize what needs no LibTorch, with address, undefined-behaviour and thread sanitizer"
	@echo "make check    format, tidy and fast tests, before a commit (TARGET=operator: without LibTorch)"
	@echo "make bench    speed of push and pull and of training; tables in build/bench (see docs/results.md)"
	@echo "make bench-operator  the operator on a real apiserver (root); PEER=build: beside Kubeflow's"
	@echo "make experiment  7 workers, 2 parameter servers, 3 placements on links of 1 Gbit/s (LINK; root; QUICK=1)"
	@echo "make compare  TensorFlow's parameter servers beside ours; TensorFlow comes from PyPI"
	@echo "make soak     20 minutes with a random kill every 20 s (SOAK_SECONDS, SOAK_SEED)"
	@echo "make image    OCI archives of operator, agent and runtime, in build/image"
	@echo "make cluster  a Kubernetes of one node in namespaces of its own (root); ends with make cluster-stop"
	@echo "make build    the programs, in build/release/bin"
	@echo "make format   lay out the sources with clang-format"
	@echo "make clean    remove build/"

packages:
	@[ "$(PACKAGES)" = skip ] || deploy/install_packages.sh

build: packages
	@$(configure) --preset release $(flags)
	cmake --build build/release --target $(programs) trainyard-operator

# An interrupted demo goes on where it stopped, a finished one starts anew.
demo: packages
	@$(configure) --preset release
	cmake --build build/release --target $(programs)
	again=; if grep -qs '"succeeded"' runs/fashion/result.json; then again=--new; fi
	exec build/release/bin/trainyard run -f examples/fashion-mnist/ps-sync.yaml \
	  --volume data=/usr/share/datasets/fashion-mnist --dir runs/fashion $$again

test: packages
	@$(configure) --preset dev -B $(dev) $(flags)
	cmake --build $(dev)
	$(cluster) build >/dev/null || [ $$? -eq 77 ]
	exec python3 tests/run_tests.py $(dev)

# Both sanitizers, whatever the first one finds. sanitize-threads: only what several threads or
# processes do at one time.
sanitize sanitize-threads: packages
	@code=0
	threads=$(findstring threads,$@)
	for preset in asan tsan; do
	  $(configure) --preset $$preset
	  cmake --build build/$$preset --target sanitized_$${threads:+threads_}tests || { code=1; continue; }
	  python3 tests/run_tests.py build/$$preset $${threads:+--label threads} || code=1
	done
	exit $$code

check: packages
	@python3 tests/format.py
	python3 tests/tidy/tidy.py
	$(configure) --preset dev -B $(dev) $(flags)
	cmake --build $(dev)
	exec python3 tests/run_tests.py $(dev) --label unit

bench: packages
	@$(configure) --preset dev
	cmake --build build/dev --target $(programs) trainyard-bench-push-pull trainyard-bench-compute trainyard-bench-all-reduce
	-cmake --build build/dev --target trainyard-bench-open-mpi
	exec python3 bench/bench.py --bin build/dev/bin --out build/bench

# PEER is the binary of Kubeflow's training operator, or `build`: then it is built from its Go module.
bench-operator: packages
	@$(configure) --preset dev -B $(dev) $(flags)
	cmake --build $(dev) --target trainyard-operator
	$(cluster) build kubernetes etcd kwok $(if $(filter build,$(PEER)),training-operator)
	exec python3 bench/operator/operator_bench.py --bin $(dev)/bin --out build/bench $(if $(PEER),--peer $(PEER))

experiment: packages
	@$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/experiment/experiment.py --bin build/dev/bin --out build/experiment \
	  --link $(or $(LINK),1Gbit) $(if $(QUICK),--quick)

compare: packages
	@$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/tensorflow/compare.py --bin build/dev/bin --out build/tensorflow

soak: packages
	@$(configure) --preset release
	cmake --build build/release --target $(programs)
	exec python3 tests/soak/soak.py build/release/bin \
	  --seconds $(or $(SOAK_SECONDS),1200) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

image: packages
	@$(configure) --preset release
	cmake --build build/release --target trainyard-agent trainyard-operator trainyard-runtime
	exec python3 deploy/image/images.py --bin build/release/bin --out build/image --version $(version)

# Programs are built once for each version, into a cache outside the tree.
cluster-build: packages
	@$(cluster) build

cluster: cluster-build
	@exec $(cluster) up build/cluster --detach

cluster-stop:
	@exec $(cluster) down build/cluster

format:
	@python3 tests/format.py --fix

clean:
	rm -rf build
