"""All-reduce of bench/all_reduce.cc and of Open MPI, in turns: rows for bench.py."""

import json
import shutil
import statistics
import subprocess

import programs

SIZES = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
RANKS = [2, 4]
# Ours, and the Open MPI that is like it: messages against TCP, shared memory against its own.
OURS = {"tcp": "tcp", "shared": "shm", "staged": "shm", "threads": None}
MPI_TRANSPORTS = {"tcp": "tcp,self", "shm": "vader,self"}
# Ours over Open MPI's, by what is measured: (over, bytes) -> at least.
BARS = {("shared", 64 << 20): 3.0, ("shared", 256 << 10): 3.0, ("tcp", 64 << 20): 1.2,
        ("tcp", 4 << 20): 0.95}


def iterations_of(size):
    return 200 if size <= 256 << 10 else 60 if size <= 4 << 20 else 25


def ours(bin_dir, over, ranks, size):
    command = [bin_dir / "trainyard-bench-all-reduce", "--over", over, "--ranks", str(ranks), "--bytes",
               str(size), "--iterations", str(iterations_of(size)), "--warm-up", "5"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True,
                                     timeout=programs.LIMIT).stdout)


def open_mpi(bin_dir, transport, ranks, size):
    command = ["mpirun", "--allow-run-as-root", "-n", str(ranks), "--mca", "btl",
               MPI_TRANSPORTS[transport], "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo"]
    if ranks > 2:
        command.append("--oversubscribe")
    command += [bin_dir / "trainyard-bench-open-mpi", str(size), str(iterations_of(size)), "5"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                     check=True, timeout=programs.LIMIT).stdout)


def has_open_mpi(bin_dir):
    return shutil.which("mpirun") is not None and (bin_dir / "trainyard-bench-open-mpi").exists()


def measure(bin_dir, rounds, sizes=None):
    """{"tcp 2 4096": [run, ...], "mpi tcp 2 4096": ..., "copy 2 4096": ...}; the systems in turns."""
    with_mpi = has_open_mpi(bin_dir)
    result = {"open_mpi": with_mpi, "iperf3": [], "cases": {}}
    for _ in range(rounds):
        result["iperf3"].append(programs.iperf3(seconds=1))
        for ranks in RANKS:
            for size in sizes or SIZES:
                for over in [*OURS, "copy"]:
                    result["cases"].setdefault(f"{over} {ranks} {size}", []).append(
                        ours(bin_dir, over, ranks, size))
                for transport in MPI_TRANSPORTS if with_mpi else []:
                    result["cases"].setdefault(f"mpi {transport} {ranks} {size}", []).append(
                        open_mpi(bin_dir, transport, ranks, size))
    return result


def times(result, name):
    """Median and 99th percentile in milliseconds over all runs of a case."""
    values = sorted(v for run in result["cases"][name] for v in run["milliseconds"])
    return statistics.median(values), values[min(len(values) - 1, int(0.99 * len(values)))]


def predicted(result, over, ranks, size, cores):
    """Rounds times what a round of the smallest array costs, and what the bytes cost: on TCP the
    kernel's CPU time a byte as iperf3 spends it, in shared memory a copy of as much."""
    latency = times(result, f"{over} {ranks} {SIZES[0]}")[0]
    if over == "tcp":
        sent = 2 * (ranks - 1) * size  # by all ranks together
        cpu = statistics.median(s["cpu_seconds_per_byte"] for s in result["iperf3"])
        return latency + sent * cpu / min(cores, ranks) * 1e3
    copy = times(result, f"copy {ranks} {size}")[0]
    return latency + copy


def table(result, cores):
    lines = ["| ranks | bytes | over | median ms | p99 ms | predicted ms | Open MPI ms (p99) | ratio | bar |",
             "|--|--|--|--|--|--|--|--|--|"]
    sizes = sorted({int(name.split()[-1]) for name in result["cases"]})
    for ranks in RANKS:
        for size in sizes:
            for over, like in OURS.items():
                median, p99 = times(result, f"{over} {ranks} {size}")
                foretold = predicted(result, over, ranks, size, cores) if over in ("tcp", "shared") else None
                row = [str(ranks), f"{size >> 10} KiB", over, f"{median:.4g}", f"{p99:.4g}",
                       f"{foretold:.4g}" if foretold else ""]
                ratio = None
                if like and result["open_mpi"]:
                    other, other_p99 = times(result, f"mpi {like} {ranks} {size}")
                    ratio = other / median
                    row += [f"{other:.4g} ({other_p99:.4g})", f"{ratio:.2f}x"]
                else:
                    row += ["", ""]
                bar = BARS.get((over, size)) if ranks == 2 else None
                verdict = "reached" if bar and ratio and ratio >= bar else "missed"
                row.append(f">= {bar}x: {verdict}" if bar and ratio else "")
                lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"
