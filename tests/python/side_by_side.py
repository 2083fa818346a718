"""Cases of a test of which several run at a time: most of the time of a job whose programs die or are held is waiting."""
import functools
import queue
import threading
import unittest

CALLS = ("addSuccess", "addError", "addFailure", "addSkip", "addExpectedFailure", "addUnexpectedSuccess", "addSubTest")


class Notes(unittest.TestResult):
    """What is to be said to a result when a case has ended, since a result hears of one case at a time."""

    def __init__(self):
        super().__init__()
        self.calls = []
        for name in CALLS:
            setattr(self, name, functools.partial(self.note, name))

    def note(self, name, *given):
        self.calls.append((name, given))

    def tell(self, case, result):
        result.startTest(case)
        for name, given in self.calls:
            getattr(result, name)(*given)
        result.stopTest(case)


class Suite(unittest.TestSuite):
    """Runs the cases of one class in threads, those that its attribute `longest` names first; suites of suites one after
    the other."""

    at_once = 1

    def run(self, result, debug=False):
        cases = list(self)
        if self.at_once == 1 or not all(isinstance(case, unittest.TestCase) for case in cases) or len({type(case) for case in cases}) != 1:
            return super().run(result, debug)
        kind = type(cases[0])
        kind.setUpClass()
        try:
            self.run_cases(cases, result)
        finally:
            kind.tearDownClass()
            kind.doClassCleanups()
        for error in kind.tearDown_exceptions:
            raise error[1]
        return result

    def run_cases(self, cases, result):
        left, lock = queue.SimpleQueue(), threading.Lock()
        longest = getattr(cases[0], "longest", ())
        for case in sorted(cases, key=lambda case: case.id().rpartition(".")[2] not in longest):
            left.put(case)

        def work():
            while True:
                try:
                    case = left.get_nowait()
                except queue.Empty:
                    return
                notes = Notes()
                case.run(notes)
                with lock:
                    notes.tell(case, result)

        threads = [threading.Thread(target=work) for _ in range(self.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(at_once, **given):
    """unittest.main() with so many cases at a time. Cases of one class share its attributes."""
    loader = unittest.TestLoader()
    loader.suiteClass = type("Several", (Suite,), {"at_once": at_once})
    return unittest.main(testLoader=loader, **given)
