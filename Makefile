# The front door; the build itself is CMake (see CMakePresets.json).
#
#   PACKAGES=skip         do not look for Debian packages
#   TRAINYARD_TORCH=DIR   make torch: a LibTorch in place of Debian's
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo demo-run test test-long test-torch torch sanitize sanitize-threads check bench experiment scaling convergence bandwidth dashboards compare compare-sparse soak fuzz build \
  install wheel foreign-suites clean format image image-torch push cluster cluster-build cluster-stop bench-operator bench-fleet

# Objects in the compiler cache serve any checkout.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Scripts leave no compiled copies in the source tree.
export PYTHONDONTWRITEBYTECODE := 1

# Begins a recipe: installs lists of deploy/packages.txt, and gives the lines after it `phase`.
packages = @PACKAGES=$(PACKAGES); . deploy/phase.sh; packages

programs := trainyard trainyard-agent trainyard-runtime
dev := build/dev
configure := cmake --log-level=WARNING

cluster := python3 tests/cluster/cluster.py
version := $(shell sed -n 's|^project.trainyard VERSION \([0-9.]*\).*|\1|p' CMakeLists.txt)

images := python3 deploy/image/images.py --bin build/release/bin --out build/image --version $(version)
# Said before anything is built.
ifneq ($(filter push,$(MAKECMDGOALS)),)
ifeq ($(REGISTRY),)
$(error make push: REGISTRY=HOST[:PORT][/PATH] says where to)
endif
endif

help:
	@echo "make demo     train on Fashion-MNIST on this machine: 2 parameter servers, 2 workers"
	@echo "make test     build everything and run every test that needs neither LibTorch nor a GPU"
	@echo "make test-long  the same without units of several sources, which finds missing includes, and larger"
	@echo "make torch    trainyard-runtime-torch beside the programs: TorchScript modules and GPUs (TRAINYARD_TORCH=DIR)"
	@echo "make test-torch  the tests of it"
	@echo "make sanitize the tests with address, undefined-behaviour and thread sanitizer"
	@echo "make check    format, tidy and fast tests, before a commit"
	@echo "make bench    speed of push and pull and of training; tables in build/bench (see docs/results.md)"
	@echo "make bench-fleet  the operator with hundreds of running jobs whose agents answer (root; JOBS='250 1000')"
	@echo "make bench-operator  the operator on a real apiserver (root); PEER=build: beside Kubeflow's"
	@echo "make experiment  7 workers, 2 parameter servers, 3 placements on links of 1 Gbit/s (LINK; root; QUICK=1; TENSORFLOW=1: that beside)"
	@echo "make scaling  1 to 16 machines: parameter servers and a ring beside the cost model (root; QUICK=1)"
	@echo "make convergence  accuracy by mode of updates, against images and time, with and without a slow worker (QUICK=1)"
	@echo "make bandwidth  all-reduce by size beside Open MPI and gloo (QUICK=1)"
	@echo "make dashboards  pictures of the Grafana dashboards, of jobs and an operator that run meanwhile (root; DASHBOARD_SECONDS)"
	@echo "make compare  TensorFlow's parameter servers beside ours; TensorFlow comes from PyPI"
	@echo "make compare-sparse  the same of models with embedding tables; PaddlePaddle, too"
	@echo "make soak     20 minutes with a random kill every 20 s (SOAK_SECONDS, SOAK_EVERY, SOAK_SEED)"
	@echo "make fuzz     every parser of bytes from outside under libFuzzer, 60 s each (FUZZ_SECONDS, FUZZ_ONLY)"
	@echo "make foreign-suites  torch's and Horovod's own tests over the Python package, and FSDP2"
	@echo "make image    OCI archives of operator, agent and runtime, and what is in them, in build/image"
	@echo "make image-torch  the same of the runtime with LibTorch, for TorchScript modules and GPUs"
	@echo "make push     the images and the chart into a registry: REGISTRY=HOST[:PORT][/PATH], TORCH=1: that one too"
	@echo "make cluster  a Kubernetes of one node in namespaces of its own (root); ends with make cluster-stop"
	@echo "make build    the programs, in build/release/bin"
	@echo "make install  the programs, libtrainyard, its header, for pkg-config and CMake too: PREFIX=/usr/local (DESTDIR)"
	@echo "make wheel    the Python package with libtrainyard in it, for pip, in build/wheel"
	@echo "make format   lay out the sources with clang-format"
	@echo "make clean    remove build/"

build:
	$(packages) demo
	$(configure) --preset release
	phase build cmake --build build/release --target $(programs) trainyard-operator

# `cpack` in build/release makes a Debian package of the same.
install: build
	cmake --build build/release --target trainyard_shared
	cmake --install build/release --component trainyard --strip --prefix $(or $(PREFIX),/usr/local) >build/install.log
	@echo "installed in $(or $(PREFIX),/usr/local)"

wheel:
	$(packages) demo wheel
	$(configure) --preset release
	phase build cmake --build build/release --target trainyard_shared
	exec python3 deploy/wheel/wheel.py --library build/release/lib/libtrainyard.so --out build/wheel

# torch's own tests of its backends, over ours and over gloo, of Debian's torch and PyPI's; what takes a newer torch than
# Debian's: tests of ours, and FSDP2; and Horovod's tests over our names. What PyPI does not give is left out.
foreign-suites:
	$(packages) demo test torch cluster
	$(configure) --preset dev
	phase cluster-build $(cluster) build || [ $$? -eq 77 ]
	phase build cmake --build $(dev) --target trainyard_shared trainyard-operator yaml_to_json $(programs)
	export TRAINYARD_BIN=$(CURDIR)/$(dev)/bin TRAINYARD_SOURCE=$(CURDIR)
	code=0
	suite() { phase "$$1" /usr/bin/python3 tests/python/foreign/"$${@:2}" || [ $$? = 77 ] || code=1; }
	suite torch torch_suite.py
	suite torch-newest torch_suite.py --torch newest
	suite process-groups-newest with_newest.py process_group_test.py
	suite fsdp with_newest.py foreign/fsdp_suite.py
	suite fsdp-pods with_newest.py foreign/fsdp_pods.py
	suite horovod horovod_suite.py
	exit $$code

# From now on, until make clean, every goal that builds trainyard-runtime builds this beside it.
torch:
	$(packages) demo $(if $(TRAINYARD_TORCH),,torch)
	$(configure) --preset release -DTRAINYARD_WITH_TORCH=ON -DTRAINYARD_TORCH=$(TRAINYARD_TORCH)
	phase build cmake --build build/release --target $(programs)

# An interrupted demo goes on where it stopped, a finished one starts anew.
# The run takes the recipe's place, so that signals reach it.
demo: demo-run
	@. deploy/phase.sh; said run $$((EPOCHSECONDS - $$(<build/release/run-began)))

demo-run:
	$(packages) demo
	$(configure) --preset release
	phase build cmake --build build/release --target $(programs)
	again=; if grep -qs '"succeeded"' runs/fashion/result.json; then again=--new; fi
	echo $$EPOCHSECONDS >build/release/run-began
	exec build/release/bin/trainyard run -f examples/fashion-mnist/ps-sync.yaml \
	  --volume data=/usr/share/datasets/fashion-mnist --dir runs/fashion $$again

test:
	$(packages) demo test cluster
	$(configure) --preset dev
	# Beside the compiler, since it downloads half of the time.
	$(cluster) build >build/cluster-build.log 2>&1 & programs=$$!
	trap 'kill $$programs 2>/dev/null || :' EXIT
	phase build cmake --build $(dev)
	phase cluster-build wait $$programs || [ $$? -eq 77 ] || { tail -n 20 build/cluster-build.log >&2; exit 1; }
	phase tests python3 tests/run_tests.py $(dev)

# Whole examples where `test` runs a part of them (TRAINYARD_LONG); in a build whose every source is
# compiled by itself.
test-long:
	$(packages) demo test cluster
	$(configure) --preset plain
	phase cluster-build $(cluster) build || [ $$? -eq 77 ]
	phase build cmake --build build/plain
	export TRAINYARD_LONG=1
	phase tests python3 tests/run_tests.py build/plain

# In a folder of its own, most of whose objects come from the compiler cache.
test-torch:
	$(packages) demo test $(if $(TRAINYARD_TORCH),,torch)
	$(configure) --preset torch -DTRAINYARD_TORCH=$(TRAINYARD_TORCH)
	phase build cmake --build build/torch --target torch_tests
	phase tests python3 tests/run_tests.py build/torch --label torch

# Both sanitizers, whatever the first one finds. sanitize-threads: only what several threads or
# processes do at one time. SANITIZERS: asan or tsan alone.
sanitize sanitize-threads:
	$(packages) demo test
	code=0
	threads=$(findstring threads,$@)
	for preset in $(or $(SANITIZERS),asan tsan); do
	  $(configure) --preset $$preset
	  phase $$preset-build cmake --build build/$$preset --target sanitized_$${threads:+threads_}tests || { code=1; continue; }
	  phase $$preset-tests python3 tests/run_tests.py build/$$preset $${threads:+--label threads} || code=1
	done
	exit $$code

check:
	$(packages) demo test
	python3 tests/format.py
	python3 tests/tidy/tidy.py
	$(configure) --preset dev
	cmake --build $(dev) --target unit_tests
	exec python3 tests/run_tests.py $(dev) --label unit

bench:
	$(packages) demo test bench
	$(configure) --preset dev
	cmake --build build/dev --target $(programs) trainyard-bench-push-pull trainyard-bench-control trainyard-bench-compute trainyard-bench-all-reduce
	-cmake --build build/dev --target trainyard-bench-open-mpi
	-cmake --build build/dev --target trainyard-bench-models
	exec python3 bench/bench.py --bin build/dev/bin --out build/bench

# PEER is the binary of Kubeflow's training operator, or `build`: then it is built from its Go module.
bench-operator:
	$(packages) demo test cluster
	$(configure) --preset dev
	cmake --build $(dev) --target trainyard-operator
	$(cluster) build kubernetes etcd kwok $(if $(filter build,$(PEER)),training-operator)
	exec python3 bench/operator/operator_bench.py --bin $(dev)/bin --out build/bench $(if $(PEER),--peer $(PEER))

bench-fleet:
	$(packages) demo test cluster
	$(configure) --preset dev
	cmake --build $(dev) --target trainyard-operator trainyard-bench-agents
	$(cluster) build kubernetes etcd
	exec python3 bench/operator/operator_fleet.py --bin $(dev)/bin --out build/fleet $(if $(JOBS),--jobs $(JOBS))

experiment:
	$(packages) demo test bench
	$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/experiment/experiment.py --bin build/dev/bin --out build/experiment \
	  --link $(or $(LINK),1Gbit) $(if $(QUICK),--quick) $(if $(TENSORFLOW),--tensorflow build/tensorflow/venv)

scaling:
	$(packages) demo test bench
	$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	python3 bench/scaling/scaling.py --bin build/dev/bin --out build/scaling $(if $(QUICK),--quick)
	exec python3 bench/scaling/splits.py --bin build/dev/bin --out build/splits $(if $(QUICK),--quick)

convergence:
	$(packages) demo test
	$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/convergence/convergence.py --bin build/dev/bin --out build/convergence $(if $(QUICK),--quick)

bandwidth:
	$(packages) demo test bench torch
	$(configure) --preset dev
	cmake --build build/dev --target trainyard-bench-all-reduce trainyard-bench-open-mpi
	exec python3 bench/bandwidth/bandwidth.py --build build/dev --out build/bandwidth $(if $(QUICK),--quick)

dashboards:
	$(packages) demo test cluster pictures
	$(configure) --preset dev
	cmake --build $(dev) --target $(programs) trainyard-operator
	$(cluster) build kubernetes etcd
	exec python3 bench/dashboards/dashboards.py --bin $(dev)/bin --out build/dashboards --seconds $(or $(DASHBOARD_SECONDS),300)

compare:
	$(packages) demo test
	$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/tensorflow/compare.py --bin build/dev/bin --out build/tensorflow

compare-sparse:
	$(packages) demo test
	$(configure) --preset dev
	cmake --build build/dev --target $(programs)
	exec python3 bench/sparse/compare.py --bin build/dev/bin --out build/sparse

soak:
	$(packages) demo test
	$(configure) --preset release
	cmake --build build/release --target $(programs)
	exec python3 tests/soak/soak.py build/release/bin \
	  --seconds $(or $(SOAK_SECONDS),1200) --every $(or $(SOAK_EVERY),20) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

# With Clang, whose fuzzer it is.
fuzz:
	$(packages) demo test fuzz
	$(configure) --preset fuzz
	phase build cmake --build build/fuzz --target trainyard-fuzz
	phase fuzz python3 tests/fuzz/fuzz.py build/fuzz --seconds $(or $(FUZZ_SECONDS),60) $(FUZZ_ONLY)

image:
	$(packages) demo image
	$(configure) --preset release
	cmake --build build/release --target trainyard-agent trainyard-operator trainyard-runtime
	exec $(images)

image-torch:
	$(packages) demo image $(if $(TRAINYARD_TORCH),,torch)
	$(configure) --preset release -DTRAINYARD_WITH_TORCH=ON -DTRAINYARD_TORCH=$(TRAINYARD_TORCH)
	cmake --build build/release --target trainyard-agent trainyard-runtime trainyard-runtime-torch
	exec $(images) trainyard-runtime-torch

push: image $(if $(TORCH),image-torch)
	@exec python3 deploy/image/push.py --images build/image --version $(version) --chart helm/trainyard \
	  --registry "$(REGISTRY)" trainyard-operator trainyard-agent trainyard-runtime \
	  $(if $(TORCH),trainyard-runtime-torch)

# Programs are built once for each version, into a cache outside the tree.
cluster-build:
	$(packages) cluster
	$(cluster) build

cluster: cluster-build
	@exec $(cluster) up build/cluster --detach

cluster-stop:
	@exec $(cluster) down build/cluster

format:
	@python3 tests/format.py --fix

clean:
	rm -rf build
