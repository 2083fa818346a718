"""What a run of the tests came to, read from the files that ctest and GoogleTest write."""
import dataclasses
import re
import xml.etree.ElementTree as ET

FAILED = "failed: "
TRACEBACK = "Traceback (most recent call last):"
# What every helper that waits says when its time is over, as does Python's subprocess.
WAITED = re.compile(r"\btimed out after [\d.]+ s(econds)?\b")
# What a GoogleTest program prints of a case: "[       OK ] Suite.case (3 ms)".
CASE = re.compile(r"(?m)^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where .*)?(?: \(\d+ ms\))?$")


@dataclasses.dataclass
class Failure:
    name: str
    reason: str
    waited: bool = False  # a wait ran out, and nothing was wrong before
    entry: str = ""       # of ctest
    cases: str = ""       # of the program, as GTEST_FILTER has them; "": all of it


@dataclasses.dataclass
class Entry:
    """What came of one entry of ctest: the cases of a GoogleTest program, or the entry as one."""
    name: str
    seconds: float = 0.0
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)  # (name, reason)

    def has_cases(self):
        return self.passed or self.failed or self.skipped


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []   # (name, first line of the reason)
        self.skipped = []  # (name, reason)
        self.flaky = []    # (name, reason): passed when run a second time
        self.times = []    # (lane, entry, seconds)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.flaky += other.flaky
        self.times += other.times

    def add_entry(self, entry, lane):
        self.passed += entry.passed
        self.failed += [(failure.name, failure.reason) for failure in entry.failed]
        self.skipped += entry.skipped
        self.times.append((lane, entry.name, entry.seconds))

    def line(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"

    def code(self):
        return 0 if self.passed and not self.failed else 1


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def failure_lines(text):
    return [line[len(FAILED):].strip() for line in (text or "").splitlines() if line.startswith(FAILED)]


def told_failures(text):
    """What a program that is not GoogleTest's says of its end: its lines "failed: ...", or what its cases of unittest
    raised, else its last line."""
    return ", ".join(failure_lines(text) or unittest_failures(text)) or last_line(text)


def unittest_failures(text):
    """"case: what was raised" of each case that failed."""
    parts = re.split(r"(?m)^={20,}$", text or "")[1:]
    named = [(re.match(r"\s*(?:FAIL|ERROR): (\S+)", part), raised_in(part)) for part in parts if TRACEBACK in part]
    return [f"{found[1]}: {raised}" for found, raised in named if found]


def raised_in(text):
    """What was raised last: the first line below the last traceback that is not part of it."""
    for line in text[text.rfind(TRACEBACK):].splitlines()[1:]:
        if line and not line.startswith(" "):
            return line
    return ""


def only_waited(text):
    """Whether all that a script says of its failures is that waits ran out. unittest separates what it
    says of several tests by lines of "="."""
    reasons = failure_lines(text)
    if not reasons:
        reasons = [raised_in(part) for part in re.split(r"(?m)^={20,}$", text or "") if TRACEBACK in part]
    return bool(reasons) and all(WAITED.search(reason) for reason in reasons)


def read_cases(path, entry):
    """Adds the cases of one GoogleTest XML file."""
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failure, skipped = case.find("failure"), case.find("skipped")
        if failure is not None:  # the first of them: others may come of it
            reason = " ".join(failure.get("message", "").split())
            entry.failed.append(Failure(name, reason, bool(WAITED.search(reason)), entry.name, name))
        elif skipped is not None:
            # "file:line" stands on a line of its own before the reason.
            entry.skipped.append((name, last_line(skipped.get("message")) or "no reason given"))
        elif case.get("status") == "notrun":
            entry.skipped.append((name, "disabled"))
        else:
            entry.passed += 1


def read_printed(output, entry, why):
    """A GoogleTest program that was killed for its time has written no XML: its cases are those that
    it printed. The one that ran is the one that timed out; those it did not come to go with it."""
    state = {name: word for word, name in CASE.findall(output)}
    ended = {name: word for name, word in state.items() if word != "RUN"}
    for name, word in ended.items():
        if word == "OK":
            entry.passed += 1
        elif word == "SKIPPED":
            entry.skipped.append((name, "see the output"))
        else:
            entry.failed.append(Failure(name, "see the output", False, entry.name, name))
    running = [name for name, word in state.items() if word == "RUN"]
    cases = "-" + ":".join(ended) if ended else ""
    name = running[-1] if running else entry.name
    entry.failed.append(Failure(name, why, True, entry.name, cases))


def read_entry(node, xml_folder, limit=None):
    """The Entry that an element of ctest's JUnit file and the XML of its program tell of. `limit`: its
    ctest TIMEOUT; that this was it the JUnit file does not say."""
    name, status = node.get("name"), node.get("status")
    entry = Entry(name, float(node.get("time") or 0))
    unreadable = ""
    for path in sorted(xml_folder.glob(f"{name}.xml")) + sorted(xml_folder.glob(f"{name}_[0-9]*.xml")):
        try:
            read_cases(path, entry)
        except ET.ParseError as error:
            unreadable = f"{path.name}: {error}"
    failure, skipped = node.find("failure"), node.find("skipped")
    output = node.findtext("system-out") or ""
    if status == "fail" or unreadable:
        why = failure.get("message", "") if failure is not None else ""
        late = limit is not None and entry.seconds >= limit
        why = f"{name} timed out after {limit:g} s" if late else why
        if late and not entry.has_cases():
            read_printed(output, entry, why)
        elif not entry.failed:  # died, timed out, or failed after its last case
            reason = unreadable or ": ".join(filter(None, (why, told_failures(output)))) or "failed"
            waited = late or not entry.has_cases() and only_waited(output)
            entry.failed.append(Failure(name, reason, waited and not unreadable, name))
    elif status in ("notrun", "disabled"):
        reason = skipped.get("message", "") if skipped is not None else ""
        if reason == "SKIP_RETURN_CODE=77":
            entry.skipped.append((name, last_line(output) or reason))
        else:  # not built, a missing fixture: it should have run
            entry.failed.append(Failure(name, reason or "did not run", False, name))
    elif not entry.has_cases():
        entry.passed += 1
    return entry
