"""Second runs. A case of a test with processes of its own (multiproc, cluster) whose waits ran out is
run again, alone; nothing else ever is: no unit test, no wrong value, digest or count.

One such case in a run of all tests is listed and forgiven. A second one is not, nor one that stands in
tests/flaky.txt: that it happens is known, and it is to be mended.
"""
import pathlib

from runner.ctest import LANES

KNOWN = pathlib.Path(__file__).resolve().parent.parent / "flaky.txt"
FORGIVEN = 1
# On a machine that starves many there is no point in trying all of them again.
MOST = 3


def deserves(build, failure):
    return failure.waited and build.lane(failure.entry) in LANES


def run_again(build, results, entries):
    """Replaces what was run again in `entries`; the cases that passed then, as (name, reason)."""
    flaky = []
    again = [(entry, failure) for entry in entries for failure in entry.failed if deserves(build, failure)]
    for number, (entry, failure) in enumerate(again[:MOST]):
        print(f"\nagain, alone: {failure.name}: {failure.reason[:300]}", flush=True)
        second = build.run_one(results / f"again-{number}", failure.entry, failure.cases)
        entry.failed.remove(failure)
        bad = [one for other in second for one in other.failed]
        entry.failed += bad
        entry.passed += sum(other.passed for other in second if other.name == entry.name)
        entry.skipped += [skip for other in second if other.name == entry.name for skip in other.skipped]
        entry.seconds += sum(other.seconds for other in second)
        if not bad:
            flaky.append((failure.name, failure.reason))
    return flaky


def read_known(path=None):
    """{name: reason} of a file with lines "NAME: reason" and comments."""
    lines = (line.strip() for line in (path or KNOWN).read_text(encoding="utf-8").splitlines())
    parted = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in parted}


def judge(totals, known):
    """Lets the run fail for flaky cases that are not forgiven."""
    for name, reason in totals.flaky:
        if name in known:
            totals.passed -= 1
            totals.failed.append((name, f"flaky, as tests/flaky.txt says ({known[name]}): {reason}"))
    if len(totals.flaky) > FORGIVEN:
        totals.failed.append(("flaky cases", f"{len(totals.flaky)} were run a second time in one run"))
