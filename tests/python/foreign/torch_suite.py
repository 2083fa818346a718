#!/usr/bin/env python3
"""torch's own tests of its backends, distributed_test.py, over trainyard and, beside it, over gloo.

    torch_suite.py [--sizes 3,4,8] [--only TEXT] [--limit SECONDS] [--backends gloo,trainyard] [--torch newest]
    torch_suite.py --selection

They come with torch: this Python's, or with --torch newest PyPI's, in a virtual environment. Tests that torch has for
gloo alone are run over trainyard too; those that ask for more ranks than the first of the sizes, with the next ones.
Ends with a line for each backend, `BACKEND: N passed, N failed, N left out`, and with what share of those that pass
over gloo passes over trainyard, and which do not; fails where that is below 95 %. --selection: some over trainyard,
all of which must pass, in one minute.
"""
import argparse
import collections
import importlib.util
import multiprocessing
import os
import pathlib
import sys
import time

import torch_tests
import with_newest
from with_newest import ranks

BACKENDS = ["gloo", "trainyard"]
SIZES = "3,4,8"
BAR = 0.95

# What is not for other backends than torch's own, and why. Run all the same, and counted as left out when it fails.
REASONS = {
    "test_monitored_barrier": "torch.distributed.monitored_barrier is for gloo, from torch 2.15 on for groups in C++",
}

# Some of each kind.
SELECTION = """
    test_all_gather test_all_gather_coalesced_complex test_all_gather_coalesced_group test_all_gather_group
    test_all_gather_object_default_pg
    test_all_reduce_coalesced_sum test_all_reduce_complex_unsupported_ops test_all_reduce_full_group_max
    test_all_reduce_group_min test_all_reduce_product test_all_reduce_sum_async test_all_reduce_sum_complex
    test_barrier test_barrier_group test_barrier_timeout_full_group
    test_batch_isend_irecv_gloo test_batch_isend_irecv_gloo_tags test_broadcast test_broadcast_group
    test_broadcast_object_list
    test_gather test_gather_group test_gather_object test_get_rank test_irecv test_isend
    test_reduce_full_group_max test_reduce_group_sum test_reduce_max test_scatter test_scatter_complex
    test_scatter_object_list test_send_recv test_send_recv_any_source test_send_recv_with_tag test_sparse_all_reduce_sum
    test_accumulate_gradients_no_sync test_DistributedDataParallelCPU_grad_is_view
    test_ddp_create_graph test_ddp_logging_data_cpu test_static_graph_api_cpu
""".split()


class Backend:
    """A process that has torch and its tests loaded for one backend, and forks one for each test."""

    def __init__(self, name, size):
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        # Forked before torch is imported, which each backend does in its own way.
        self._process = context.Process(target=torch_tests.serve, args=(other, name, size))
        self._process.start()
        other.close()
        self.names = self._pipe.recv()

    def run(self, test, limit):
        """("passed" | "failed" | "left out", the last lines of its output, or why it is left out)"""
        self._pipe.send((test, limit))
        return self._pipe.recv()

    def end(self):
        self._pipe.send(None)
        self._process.join()


class Outcomes:
    """Of one backend, by test."""

    def __init__(self):
        self.of, self.seconds = {}, 0.0

    def those(self, how):
        return [test for test, (was, _) in self.of.items() if was == how]

    def wants_ranks(self, test):
        """Whether it was left out for the number of ranks."""
        how, text = self.of[test]
        return how == "left out" and "world size" in text


def run_sizes(wanted, sizes, limit, names):
    """{name of a backend: Outcomes} of all tests for which `wanted(test)`, with the first size that suits each."""
    found = {name: Outcomes() for name in names}
    first = found[names[0]]
    for size in sizes:
        backends = {name: Backend(name, size) for name in names}
        for test in backends[names[0]].names:
            if wanted(test) and (test not in first.of or first.wants_ranks(test)):
                run_test(test, backends, found, limit)
        for backend in backends.values():
            backend.end()
        if not any(first.wants_ranks(test) for test in first.of):
            break
    return found


def run_test(test, backends, found, limit):
    """One test over each backend."""
    for name, backend in backends.items():
        of = found[name].of
        if name != "gloo" and "gloo" in found and found["gloo"].of[test][0] == "left out":
            of[test] = found["gloo"].of[test]  # it needs GPUs, or another number of ranks
            continue
        begun = time.monotonic()
        how, text = of[test] = backend.run(test, limit)
        found[name].seconds += time.monotonic() - begun
        reason = next((why for prefix, why in REASONS.items() if test.startswith(prefix)), None)
        if how == "failed" and name != "gloo" and reason:
            of[test] = "left out", reason
        elif how == "failed":
            print(f"--- {name}: {test}\n{text}", flush=True)


def report(found):
    """Prints the counts; whether enough of those that pass over gloo pass over ours too."""
    told = {}
    for name, outcomes in found.items():
        by_reason = collections.defaultdict(list)
        for test in outcomes.those("left out"):
            if told.setdefault(test, name) == name:
                by_reason[outcomes.of[test][1]].append(test)
        print(f"{name}: {len(outcomes.those('passed'))} passed, {len(outcomes.those('failed'))} failed, "
              f"{len(outcomes.those('left out'))} left out, in {outcomes.seconds:.0f} s")
        if outcomes.those("failed"):
            print(f"  failed: {', '.join(outcomes.those('failed'))}")
        for reason, tests in sorted(by_reason.items(), key=lambda each: -len(each[1])):
            print(f"  {len(tests)} left out: {reason}: {', '.join(tests)}")
    if not all(name in found for name in BACKENDS):
        return not any(outcomes.those("failed") for outcomes in found.values())
    passed, ours = found["gloo"].those("passed"), set(found["trainyard"].those("passed"))
    missing = [test for test in passed if test not in ours]
    share = 1 - len(missing) / max(1, len(passed))
    print(f"of the {len(passed)} that pass over gloo {len(passed) - len(missing)} pass over trainyard, {share:.1%}")
    print(f"  not: {', '.join(missing) or 'none'}")
    return share >= BAR


def find_library():
    """For the processes that are started too; False where it is not built."""
    library = ranks.find_library()
    if library:
        os.environ["TRAINYARD_LIBRARY"] = str(pathlib.Path(library).resolve())
    return bool(library) and os.path.exists(library)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--torch", choices=("own", "newest"), default="own")
    parser.add_argument("--selection", action="store_true")
    arguments = parser.parse_args()
    if not find_library():
        print("skipped: libtrainyard.so is not built: TRAINYARD_LIBRARY or TRAINYARD_BIN says where")
        return ranks.SKIPPED
    if arguments.torch == "newest":
        return with_newest.run([__file__, *(each for each in sys.argv[1:]
                                            if each not in ("--torch", "newest", "--torch=newest"))])
    lacking = [module for module in ("torch", "numpy") if importlib.util.find_spec(module) is None]
    if lacking:
        print(f"skipped: there is no {lacking[0]}")
        return ranks.SKIPPED
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.selection:
        return 0 if report(run_sizes(SELECTION.__contains__, sizes[:1], arguments.limit, BACKENDS[1:])) else 1
    found = run_sizes(lambda test: arguments.only in test, sizes, arguments.limit, arguments.backends.split(","))
    return 0 if report(found) else 1


if __name__ == "__main__":
    sys.exit(main())
