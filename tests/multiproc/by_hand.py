#!/usr/bin/env python3
"""Tasks started by hand on two machines: two network namespaces that share a folder.

by_hand.py RUNTIME: wrong flags are refused in one line; then 2 ps and 2 workers train, are stopped by Ctrl-C
at ps-0 and started again, a worker is killed and started again, and all end by themselves. Exits 77 where
namespaces cannot be made.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from hand_tasks import HandTasks

SKIPPED = 77
STEPS = 300
PATIENCE = 300
SOURCE = pathlib.Path(__file__).resolve().parents[2]
# Of the old examples; docs/migration.md says what to do instead.
NO_COUNTERPART = ("--num_gpus=1", "--existing_servers=1", "--download_only", "--allow_soft_placement=1",
                  "--log_device_placement")
HOSTS = ("10.213.7.1", "10.213.7.2")


class Namespaces:
    """Two namespaces joined by a veth pair; gone at the end."""

    def __init__(self):
        self.names = [f"ty-hand-{os.getpid()}-{side}" for side in "ab"]

    def __enter__(self):
        links = [f"tyh{os.getpid() % 1000000}{side}" for side in "ab"]
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", links[0], "netns", self.names[0], "type", "veth",
               "peer", "name", links[1], "netns", self.names[1])
            for name, link, host in zip(self.names, links, HOSTS):
                ip("-n", name, "addr", "add", f"{host}/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Tasks(HandTasks):
    def __init__(self, runtime, names, folder):
        super().__init__(folder, PATIENCE)
        self.runtime, self.names = runtime, names
        # While it is there, the job is far from its end.
        self.slow = self.folder / "slow"
        self.slow.touch()

    def common(self):
        return [f"--ps_hosts={HOSTS[0]}:2222,{HOSTS[1]}:2222",
                f"--worker_hosts={HOSTS[0]}:2223,{HOSTS[1]}:2223", "--issync=1", "--model=mlp",
                "--hidden_units=32", "--synthetic_data=3000", "--batch_size=16",
                f"--train_steps={STEPS}", "--optimizer=RMSProp", "--learning_rate=0.001",
                f"--checkpoint_dir={self.folder}/run"]

    def start(self, role, index, old_form):
        task = [f"--job_name={role}", f"--task_index={index}"] if old_form else [
            role, f"--task_index={index}"]
        verb, rest = ([], task) if old_form else (task[:1], task[1:])
        self.launch(f"{role}-{index}", ["ip", "netns", "exec", self.names[index], self.runtime, *verb, *self.common(),
                                        *rest], step_ms=100, file=self.slow)

    def start_all(self, old_form):
        for role in ("worker", "ps"):  # a worker waits for its ps
            for index in (0, 1):
                self.start(role, index, old_form)

    def checkpoints(self):
        manifests = (self.folder / "run/checkpoints").glob("step-*.json")
        return sorted(int(m.name[5:].split(".")[0]) for m in manifests)


def refused(runtime, *flags):
    done = subprocess.run([runtime, *flags], capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2 and len(lines) == 1, (flags, done)
    return lines[0]


def check_refusals(runtime):
    lists = ["--ps_hosts=a:1", "--worker_hosts=b:1,c:1"]
    rest = ["--checkpoint_dir=/nonexistent/run", "--synthetic_data=100"]
    for flags, words in (
            (["worker", *lists, *rest, "--task_index=2"],
             "--task_index: 2 is not below the 2 hosts of --worker_hosts"),
            (["--worker_hosts=b:1", "--job_name=ps", *rest], "--ps_hosts: names no parameter server"),
            (["--ps_hosts=a", "--worker_hosts=b:1", "--job_name=ps", *rest],
             '--ps_hosts: "a" is not host:port'),
            ([*lists, *rest, "--job_name=chief"], '--job_name: expected ps or worker, got "chief"'),
            (["ps", *lists, rest[1]], "--checkpoint_dir: missing"),
            (["ps", *lists, rest[0]], "--data_dir: missing"),
            (["ps", *lists, *rest, "--issync=1", "--replicas_to_aggregate=3"],
             "--replicas_to_aggregate: 3 is not from 1 to the 2 workers"),
            (["ps", *lists, *rest, "--optimizer=Lamb"], "--optimizer: Lamb not in"),
            (["ps", *lists, *rest, "--issync=maybe"], 'expected true or false, got "maybe"'),
            *((["worker", *lists, *rest, flag], flag) for flag in NO_COUNTERPART)):
        line = refused(runtime, *flags)
        assert words in line, (words, line)
    listed = (SOURCE / "docs/migration.md").read_text()
    for flag in NO_COUNTERPART:
        assert f"| `{flag.split('=')[0]}` |" in listed, f"docs/migration.md does not say what to do instead of {flag}"


def train(tasks):
    tasks.start_all(old_form=True)
    tasks.reach("worker-1", 20)
    tasks.processes["ps-0"].send_signal(signal.SIGINT)
    assert tasks.wait("ps-0") == 130, tasks.logs()
    for name in ("ps-1", "worker-0", "worker-1"):
        assert tasks.wait(name) == 0, tasks.logs()
    stopped = tasks.checkpoints()[-1]
    assert 20 <= stopped < STEPS, (stopped, tasks.logs())

    tasks.start_all(old_form=False)
    tasks.reach("worker-1", stopped + 20)
    tasks.processes["worker-1"].kill()
    tasks.wait("worker-1")
    tasks.start("worker", 1, old_form=False)
    tasks.slow.unlink()
    for name in tasks.processes:
        assert tasks.wait(name) == 0, (name, tasks.logs())
    assert tasks.checkpoints()[-1] == STEPS, tasks.logs()
    for name, rank in (("worker-0", 0), ("worker-1", 1)):
        records = tasks.positions(name)
        assert records[-1]["step"] == STEPS - 1, records[-1]
        # A process that is killed right after a step may leave no record of it.
        steps = {r["step"] for r in records}
        assert len(steps) >= STEPS - 1 and {r["rank"] for r in records} == {rank}, name
    log = (tasks.folder / "ps-0.log").read_text()
    assert f"step {STEPS} of {STEPS}" in log and "accuracy" in log and "the job is over" in log, log


def main():
    runtime = sys.argv[1]
    check_refusals(runtime)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: network namespaces need root and iproute2")
        return SKIPPED
    try:
        namespaces = Namespaces().__enter__()
    except subprocess.CalledProcessError as error:
        print(f"skipped: no network namespaces: {error.stderr.strip()}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        tasks = Tasks(runtime, namespaces.names, folder)
        try:
            train(tasks)
        finally:
            tasks.end()
            namespaces.__exit__()
    print("tasks by hand in two network namespaces trained to the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
