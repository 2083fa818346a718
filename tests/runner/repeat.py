"""One test many times, with other processes beside it that compute."""
import collections
import contextlib
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


def find(build, name):
    """(entry, cases) for the name of an entry or of a GoogleTest case."""
    if name in build.labels:
        return name, ""
    suite = name.split(".")[0].split("/")[-1].encode()
    for entry, program in build.programs.items():
        try:
            with open(program, "rb") as file:
                if suite not in file.read():
                    continue
            listed = subprocess.run([program, f"--gtest_filter={name}", "--gtest_list_tests"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if listed.returncode == 0 and any(line.startswith("  ") for line in listed.stdout.splitlines()):
            return entry, name
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
