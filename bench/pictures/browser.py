"""A page in Debian's chromium that is looked at and clicked on, by the pipe of its DevTools protocol."""
import base64
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

SECONDS = 120  # against hangs only


class Page:
    """One tab. Commands go in by a pipe, a zero byte behind each, and answers come out by another."""

    def __init__(self, commands, answers):
        self.commands, self.answers = commands, answers
        self.number = 0
        self.rest = b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def read(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 16)
            if not more:
                raise RuntimeError("chromium has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def look(self, script):
        """What a script returns."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"])[:500])
        return result["result"].get("value")

    def wait(self, what, script):
        end = time.monotonic() + SECONDS
        while not (found := self.look(script)):
            if time.monotonic() > end:
                raise RuntimeError(f"gave up waiting for {what}")
            time.sleep(0.2)
        return found

    def open(self, url, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def page():
    """Until the end of a `with`."""
    its_commands, commands = os.pipe()
    answers, its_answers = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        child = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{its_commands} 4>&{its_answers}', "sh", *words],
                                 pass_fds=(its_commands, its_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(its_commands)
        os.close(its_answers)
        try:
            yield Page(commands, answers)
        finally:
            child.terminate()
            child.wait(30)
            os.close(commands)
            os.close(answers)
