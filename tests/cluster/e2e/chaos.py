"""What is done to the processes of pods, from inside the cluster."""
import contextlib
import signal
import sys

# Finds processes by the end of their program's name and, where one is given, by their pod; prints how many.
SCRIPT = """
import glob, os, pathlib, subprocess, sys
program, pod, action, value = sys.argv[1:]
found = []
for process in map(pathlib.Path, glob.glob("/proc/[0-9]*")):
    try:
        name = (process / "cmdline").read_bytes().split(b"\\0")[0].decode()
        host = (process / "root/etc/hostname").read_text().strip()
    except OSError:
        continue
    if name.endswith(program) and pod in ("", host):
        found.append(process.name)
for pid in found:
    if action == "signal":
        os.kill(int(pid), int(value))
for pid in found[:1] if action == "iptables" else []:
    done = subprocess.run(["nsenter", "-t", pid, "-n", "iptables", "-w", *value.split()], check=False)
    if done.returncode != 0 and os.path.exists(f"/proc/{pid}/ns/net"):
        sys.exit(done.returncode)
    if done.returncode != 0:
        found = []  # it ended in between, and its network with it
print(len(found))
"""


def act(world, program, pod, action, value):
    """How many processes there were."""
    done = world.cluster.inside(sys.executable, "-c", SCRIPT, program, pod, action, str(value))
    if done.returncode != 0:
        raise AssertionError(f"{action} {value} of {program} in {pod or 'all pods'}: {done.stderr}")
    return int(done.stdout)


def kill(world, pod):
    """The programs that the pod's agent has started."""
    return act(world, "trainyard-runtime", pod, "signal", int(signal.SIGKILL))


@contextlib.contextmanager
def dropped(world, pods, *rules):
    """What the rules fit ("INPUT", with more words of iptables) does not get through in these pods."""
    set_up = [(pod, rule) for pod in pods for rule in rules]
    for pod, rule in set_up:
        if act(world, "trainyard-agent", pod, "iptables", f"-I {rule} -j DROP") == 0:
            raise AssertionError(f"{pod} has no agent")
    try:
        yield
    finally:
        for pod, rule in set_up:
            act(world, "trainyard-agent", pod, "iptables", f"-D {rule} -j DROP")


def cut_network(world, pod):
    """Nothing comes to the pod or goes from it; its connections stay open."""
    return dropped(world, [pod], "INPUT", "OUTPUT")


def cut_control(world, pods, port):
    """As a NetworkPolicy that forgets the agents' port."""
    return dropped(world, pods, f"INPUT -p tcp --dport {port}")


@contextlib.contextmanager
def frozen_operators(world):
    """Longer than the lease, another one would lead; here all of them stand still."""
    if act(world, "trainyard-operator", "", "signal", int(signal.SIGSTOP)) == 0:
        raise AssertionError("there is no operator")
    try:
        yield
    finally:
        act(world, "trainyard-operator", "", "signal", int(signal.SIGCONT))
