"""Speed of the local trainer: what `make bench` runs.

All that is compared is measured in turns in one run, so that a machine that is busy for a while slows
down both sides. Writes results.json (every single measurement) and results.md (the table, as in
docs/results.md) into --out and prints the table.

    python3 bench/bench.py --bin build/dev/bin --out build/bench [--rounds 5] [--only push-pull]
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import all_reduce  # noqa: E402
import models  # noqa: E402
import programs  # noqa: E402
import worker_start  # noqa: E402

MIB = 1 << 20
# Bars that a run is held against; docs/results.md says what they mean.
BAR_STREAM = 0.75  # of one TCP stream of iperf3
BAR_SHARE = 0.13
BAR_SHARED_RATE = 6.0  # GB/s, through shared memory
BAR_SHARED_SHARE = 0.06
BAR_REPLICAS = 0.15
BAR_SMALL = 1.2


def push_pull(bin_dir, rounds, steps):
    """Rounds of: one iperf3 stream, then every shape and size, one after the other."""
    cases = [("large", 1, 1), ("small", 1, 1), ("large", 2, 2), ("small", 2, 2)]
    names = [f"{s} {w}x{n}" for s, n, w in cases]
    result = {"iperf3": [], "cases": {n: [] for n in names}, "shared": {n: [] for n in names},
              "replicas": {n: [] for n in names if not n.endswith("x1")}}
    for _ in range(rounds):
        result["iperf3"].append(programs.iperf3(seconds=2))
        for shape, servers, workers in cases:
            for over, shared in (("cases", False), ("shared", True)):
                result[over][f"{shape} {workers}x{servers}"].append(
                    programs.push_pull(bin_dir, shape, servers, workers, steps, shared))
            if servers > 1:
                result["replicas"][f"{shape} {workers}x{servers}"].append(
                    programs.push_pull(bin_dir, shape, servers, workers, steps, replicas=True))
    return result


def training(bin_dir, out, data, rounds, steps):
    """Rounds of: two workers that only compute, the same two when they also wait for each other, then the job with
    two workers and two servers, over TCP and through shared memory, in both ways with and without replicas, then
    without servers (strategy AllReduce), in the same two ways."""
    result = {"compute": [], "barrier": [], "job": [], "shared": [], "bare": [], "shared_bare": [], "ring": [],
              "shared_ring": []}
    for _ in range(rounds):
        result["compute"].append(programs.compute(bin_dir, data, workers=2, steps=steps))
        result["barrier"].append(programs.compute(bin_dir, data, workers=2, steps=steps, servers=2))
        result["job"].append(programs.job(bin_dir, out, data, steps=2 * steps))
        result["shared"].append(programs.job(bin_dir, out, data, steps=2 * steps, shared=True))
        result["bare"].append(programs.job(bin_dir, out, data, steps=2 * steps, replicas=False))
        result["shared_bare"].append(
            programs.job(bin_dir, out, data, steps=2 * steps, shared=True, replicas=False))
        result["ring"].append(programs.job(bin_dir, out, data, steps=2 * steps, servers=0))
        result["shared_ring"].append(programs.job(bin_dir, out, data, steps=2 * steps, shared=True, servers=0))
    return result


def median(values):
    return statistics.median(values)


def predicted_ms(stream, workers, size):
    """Every byte of the model crosses the kernel once in each direction for each worker. What that
    costs is taken from iperf3 in the same run: CPU seconds per byte, over this machine's cores."""
    cores = min(os.cpu_count(), 2 * workers)
    return 2 * workers * size * stream["cpu_seconds_per_byte"] / cores * 1e3


def push_pull_rows(result):
    stream = median([s["bytes_per_second"] for s in result["iperf3"]])
    rows = [("iperf3, one stream", f"{stream / 1e9:.2f} GB/s", "", "")]
    best = {}
    for name, runs in result["cases"].items():
        workers = int(name.split()[1].split("x")[0])
        measured = median([r["milliseconds"] for r in runs])
        predicted = median([predicted_ms(s, workers, r["bytes"])
                            for s, r in zip(result["iperf3"], runs)])
        rate = runs[0]["bytes"] / measured / 1e6
        share = median([r["bytes"] / r["milliseconds"] * 1e3 / s["bytes_per_second"]
                        for s, r in zip(result["iperf3"], runs)])
        best[name] = (measured, rate, share)
        cpu = median([r["cpu_ms"] for r in runs])
        rows.append((f"push and pull of 64 MiB, {name}",
                     f"{rate:.2f} GB/s a worker, {measured:.1f} ms",
                     f"predicted {predicted:.1f} ms; {cpu:.0f} ms of CPU; {share:.2f} of iperf3", ""))
    for name, runs in result["shared"].items():
        measured = median([r["milliseconds"] for r in runs])
        ratio = median([t["milliseconds"] / r["milliseconds"]
                        for t, r in zip(result["cases"][name], runs)])
        rows.append((f"the same through shared memory, {name}",
                     f"{runs[0]['bytes'] / measured / 1e6:.2f} GB/s a worker, {measured:.1f} ms",
                     f"{ratio:.2f}x of TCP; {median([r['cpu_ms'] for r in runs]):.0f} ms of CPU", ""))
    for name, runs in result["replicas"].items():
        workers = int(name.split()[1].split("x")[0])
        measured = median([r["milliseconds"] for r in runs])
        ratio = median([r["milliseconds"] / t["milliseconds"]
                        for t, r in zip(result["cases"][name], runs)])
        # Of what workers push and pull; what servers send each other is the model once.
        rows.append((f"the same with replicas, {name}",
                     f"{measured:.1f} ms, {median([r['cpu_ms'] for r in runs]):.0f} ms of CPU",
                     f"{ratio:.2f}x of the step without; {1 / (2 * workers):.1%} more bytes predicted", ""))
    shared = result["shared"]["large 1x1"]
    shared_rate = shared[0]["bytes"] / median([r["milliseconds"] for r in shared]) / 1e6
    rows.append(("64 MiB, 1x1, shared memory, against the bar", f"{shared_rate:.2f} GB/s",
                 f">= {BAR_SHARED_RATE} GB/s", verdict(shared_rate >= BAR_SHARED_RATE)))
    _, rate, share = best["large 1x1"]
    small = median([s["milliseconds"] / l["milliseconds"] for s, l in
                    zip(result["cases"]["small 1x1"], result["cases"]["large 1x1"])])
    rows.append(("64 MiB, 1x1, against the bar", f"{rate:.2f} GB/s, {share:.2f} of iperf3",
                 f">= {BAR_STREAM} of iperf3", verdict(share >= BAR_STREAM)))
    rows.append(("4096 small tensors against one large, time a byte", f"{small:.2f}x",
                 f"<= {BAR_SMALL}x", verdict(small <= BAR_SMALL)))
    return rows


def training_rows(result):
    alone = median([c["milliseconds"] for c in result["compute"]])
    meeting = median([b["milliseconds"] for b in result["barrier"]])
    waiting = median([1 - c["milliseconds"] / b["milliseconds"]
                      for c, b in zip(result["compute"], result["barrier"])])
    rows = [("the same two, who wait for each other at 2 ps and move nothing",
             f"{meeting:.1f} ms a step, share {waiting * 100:.1f} %", "", "")]
    for how, jobs, bar in (("2 ps, TCP", result["job"], BAR_SHARE),
                           ("2 ps, shared memory", result["shared"], BAR_SHARED_SHARE),
                           ("AllReduce, TCP", result["ring"], None),
                           ("AllReduce, shared memory", result["shared_ring"], None)):
        step = median([j["step_ms"] for j in jobs])
        share = median([1 - c["milliseconds"] / j["step_ms"] for c, j in zip(result["compute"], jobs)])
        images = median([j["images_per_second"] for j in jobs])
        rows.append((f"mnist_cnn, 2 workers, batch 128 each, {how}",
                     f"{images:.0f} images/s, {step:.1f} ms a step", "", ""))
        rows.append((f"synchronizer's share, {how}", f"{share * 100:.1f} %",
                     f"<= {bar * 100:.0f} %" if bar else "", verdict(share <= bar) if bar else ""))
    for over, servers, ring in (("TCP", "job", "ring"), ("shared memory", "shared", "shared_ring")):
        ratio = median([s["step_ms"] / r["step_ms"] for s, r in zip(result[servers], result[ring])])
        rows.append((f"a step with 2 ps against one with AllReduce, {over}", f"{ratio:.2f}x", "", ""))
    for over, kept, bare in (("TCP", "job", "bare"), ("shared memory", "shared", "shared_bare")):
        cost = median([k["step_ms"] / b["step_ms"] - 1 for k, b in zip(result[kept], result[bare])])
        rows.append((f"what replicas cost of a step with 2 ps, {over}", f"{cost * 100:.1f} %",
                     f"<= {BAR_REPLICAS * 100:.0f} %", verdict(cost <= BAR_REPLICAS)))
    start = median([j["first_step_seconds"] for j in result["job"] + result["shared"]])
    return [
        ("mnist_cnn's two workers without a synchronizer", f"{alone:.1f} ms a step", "", ""),
        *rows,
        ("`trainyard run` to first step", f"{start:.2f} s", "", ""),
    ]


def start_rows(result):
    workers = [worker for run in result for worker in run.values()]
    first = median([w["first_step_seconds"] for w in workers])
    cpu = median([w["cpu_seconds"] for w in workers])
    most = max(w["resident_bytes"] for w in workers)
    return [
        ("a worker of mnist_cnn, its start to the end of its first step", f"{first:.2f} s",
         f"{cpu:.2f} s of CPU; <= {worker_start.BAR_FIRST_STEP} s", verdict(first <= worker_start.BAR_FIRST_STEP)),
        ("the same, resident at most", f"{most / 1e6:.0f} MB", f"<= {worker_start.BAR_RESIDENT / 1e6:.0f} MB",
         verdict(most <= worker_start.BAR_RESIDENT)),
    ]


def control_rows(result):
    def of(kind, what):
        return median([r[kind][what] for r in result])

    return [
        ("a report to the coordinator, mutual TLS", f"{of('tls', 'round_trip_us'):.0f} us",
         f"unencrypted {of('plain', 'round_trip_us'):.0f} us", ""),
        ("the first on a new connection", f"{of('tls', 'first_call_ms'):.1f} ms",
         f"unencrypted {of('plain', 'first_call_ms'):.1f} ms", ""),
        ("a process's keys from the token", f"{median([r['derive_ms'] for r in result]):.2f} ms", "", ""),
    ]


def verdict(reached):
    return "reached" if reached else "missed"


def table(rows):
    lines = ["| what | measured | beside it | |", "|--|--|--|--|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where the programs are")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="where the results go")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--steps", default=30, type=int, help="measured steps of a round")
    parser.add_argument("--only", choices=["control", "push-pull", "training", "start", "models", "all-reduce"])
    parser.add_argument("--torch-bin", type=pathlib.Path,
                        help="where trainyard-bench-models is, which links LibTorch (as --bin)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = {"machine": programs.machine(), "date": datetime.date.today().isoformat(),
               "rounds": args.rounds, "steps": args.steps}
    rows = []
    around = programs.Surroundings()
    if args.only in (None, "push-pull"):
        results["push_pull"] = push_pull(args.bin, args.rounds, args.steps)
        rows += push_pull_rows(results["push_pull"])
    if args.only in (None, "training"):
        results["training"] = training(args.bin, args.out, args.data, args.rounds, args.steps)
        rows += training_rows(results["training"])
    if args.only in (None, "start"):
        results["start"] = worker_start.measure(args.bin, args.out, args.data, args.rounds, args.steps)
        rows += start_rows(results["start"])
    if args.only in (None, "control"):
        results["control"] = [programs.control(args.bin) for _ in range(args.rounds)]
        rows += control_rows(results["control"])
    torch_bin = args.torch_bin or args.bin
    if args.only in (None, "models"):
        if (torch_bin / models.PROGRAM).exists():
            results["models"] = models.measure(torch_bin, args.rounds)
            rows += models.rows(results["models"])
        else:
            print(f"left out: {torch_bin / models.PROGRAM} is not there, it needs LibTorch", file=sys.stderr)
    results["around"] = around.text()
    text = f"{results['machine']}, {results['date']}, median of {args.rounds} rounds; {results['around']}\n\n"
    text += table(rows) if rows else ""
    if args.only in (None, "all-reduce"):
        results["all_reduce"] = all_reduce.measure(args.bin, args.rounds)
        text += "\n" + all_reduce.table(results["all_reduce"], os.cpu_count())
    (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (args.out / "results.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
