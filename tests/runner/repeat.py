"""One test many times, with other processes beside it that compute."""
import collections
import contextlib
import re
import shutil
import subprocess
import sys
import time


@contextlib.contextmanager
def load(processes):
    """So many processes that do nothing but compute."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def listed(program, cases):
    done = subprocess.run([program, f"--gtest_filter={cases}", "--gtest_list_tests"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, timeout=60, check=True)
    return [line for line in done.stdout.splitlines() if line.strip()]


def find(build, name):
    """(entry, cases) for the name of an entry or of a GoogleTest case."""
    if name in build.labels:
        return name, ""
    suite = name.split(".")[0].split("/")[-1]
    for entry, program in build.programs.items():
        try:
            with open(program, "rb") as file:
                if suite.encode() not in file.read():
                    continue
            # A filter that only leaves out: the suites of this entry, not all those of its program.
            own = listed(program, "-none.none")
            if any(re.fullmatch(rf"(.*/)?{suite}(/.*)?\.", line.split()[0]) for line in own) and \
                    any(line.startswith("  ") for line in listed(program, name)):
                return entry, name
        except (OSError, subprocess.SubprocessError):
            continue
    raise SystemExit(f"{build.folder}: no entry and no case {name}")


def repeat(build, results, name, times, burners):
    """Prints how often it failed and why; the exit code."""
    entry, cases = find(build, name)
    shutil.rmtree(results, ignore_errors=True)
    reasons, failed, skipped = collections.Counter(), 0, 0
    with load(burners):
        for number in range(1, times + 1):
            began = time.monotonic()
            entries = build.run_one(results / str(number), entry, cases)
            bad = [failure for one in entries for failure in one.failed]
            ran = any(one.passed or one.failed for one in entries)
            word = "failed" if bad else "passed" if ran else "skipped"
            failed, skipped = failed + bool(bad), skipped + (not ran)
            reasons.update(f"{failure.name}: {failure.reason[:300]}" for failure in bad)
            print(f"{name}: run {number} of {times} {word} in {time.monotonic() - began:.1f} s", flush=True)
    print()
    for reason, count in reasons.most_common():
        print(f"{count} times: {reason}")
    print(f"{name}: {failed} of {times} runs failed, {skipped} skipped, {burners} processes beside it",
          flush=True)
    return 1 if failed or skipped == times else 0
