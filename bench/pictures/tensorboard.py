#!/usr/bin/env python3
"""A picture of TensorBoard's page Graphs for a job: each part of a variable on the parameter server that holds it.

    python3 bench/pictures/tensorboard.py --bin build/dev/bin --python VENV/bin/python --out build/tensorboard

VENV has TensorBoard (deploy/wheels.txt). Trains a small model on one machine, starts TensorBoard's own server over its
events, and looks at the page in Debian's chromium, coloured by device: tensorboard.png.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import browser  # noqa: E402

SECONDS = 120  # against hangs only
WIDTH, HEIGHT = 1500, 900
JOB = """apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: placed}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: mnist_cnn}
    placement: {strategy: FixedSize, fixedSize: {shards: 2}}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 256, evalSamples: 64}
    batchSize: 16
    steps: 4
    optimizer: {name: SGD, learningRate: 0.01}
"""
# Elements behind shadow roots, which selectors of the document do not reach.
FIND = """
const every = (root) => [...root.querySelectorAll('*')].flatMap(e => [e, ...(e.shadowRoot ? every(e.shadowRoot) : [])]);
"""


def train(trainyard, out):
    (out / "job.yaml").write_text(JOB)
    subprocess.run([trainyard, "run", "-f", out / "job.yaml", "--dir", out / "run"], check=True, timeout=SECONDS)
    return out / "run" / "events"


def address(child, log):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and child.poll() is None:
        if found := re.search(r"at (http://127\.0\.0\.1:\d+)/", log.read_text()):
            with urllib.request.urlopen(f"{found[1]}/data/plugin/graphs/info", timeout=SECONDS):
                return found[1]
        time.sleep(0.2)
    sys.exit(f"no TensorBoard: {log.read_text()}")


def stand_still(page):
    """The page moves its nodes into their places."""
    end, places, still = time.monotonic() + SECONDS, None, 0
    while still < 5 and time.monotonic() < end:
        time.sleep(0.5)
        now = page.look(f"""(() => {{ {FIND}
            return JSON.stringify(every(document).filter(e => e.matches('g.node')).map(e => e.getBoundingClientRect())); }})()""")
        still, places = (still + 1, now) if now == places else (0, now)


def look(url, picture):
    with browser.page() as page:
        page.open(f"{url}/#graphs", WIDTH, HEIGHT)
        page.wait("the graph", f"(() => {{ {FIND} return every(document).some(e => e.matches('g.node')); }})()")
        page.wait("the choice of colours", f"""(() => {{ {FIND}
            const choice = every(document).find(e => e.localName === 'paper-radio-button' && /device/i.test(e.textContent));
            if (choice) choice.click();
            return Boolean(choice); }})()""")
        # The legend of devices, and variables in the colours of two.
        page.wait("its colours", f"""(() => {{ {FIND}
            const all = every(document);
            return all.some(e => e.textContent.trim() === 'unknown device') && all.some(e => e.localName === 'linearGradient'); }})()""")
        stand_still(page)
        page.picture(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="where trainyard is")
    parser.add_argument("--python", required=True, help="one that has TensorBoard")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    events = train(args.bin.resolve() / "trainyard", args.out)
    log = args.out / "tensorboard.log"
    with log.open("wb") as output:
        child = subprocess.Popen([args.python, "-m", "tensorboard.main", "--logdir", events, "--port", "0", "--host", "127.0.0.1",
                                  "--load_fast", "false"], stdout=output, stderr=subprocess.STDOUT)
    try:
        look(address(child, log), args.out / "tensorboard.png")
    finally:
        child.terminate()
        child.wait(60)
    print(args.out / "tensorboard.png")


if __name__ == "__main__":
    main()
