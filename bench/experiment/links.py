"""Network namespaces behind shaped links, for the tasks of a job. Needs root and iproute2.

Every host has a namespace of its own with one interface, a veth pair to a bridge in a further
namespace, the switch:

    host ps-0                 switch
    eth0 10.0.0.1/24 <veth>  ps-0 \\
                                     bridge
    eth0 10.0.0.2/24 <veth>  ps-1 /

What a host sends is shaped at its end of the pair, what it receives at the other one, as on a
full-duplex link. Nothing is changed outside these namespaces.
"""

import os
import pathlib
import re
import signal
import subprocess
import time

NAMES = pathlib.Path("/run/netns")
PREFIX = "trainyard"
# A token bucket of a quarter of a megabyte lets whole segments of 64 KiB through without cutting
# them up, and is 2 ms of 1 Gbit/s. The queue holds what seven senders may have on the way to one
# receiver, so that TCP fills the link and loses little.
BURST = 256 << 10
QUEUE = 4 << 20
# A host that is to be reached, but not measured.
UNSHAPED = None

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def bits_per_second(text):
    """"1Gbit", "1Gbit/s", "250Mbit" as a number; ValueError otherwise."""
    match = re.fullmatch(r"([0-9.]+)\s*([kmgKMG]?)bit(/s|ps)?", text)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"{text!r} is no bandwidth such as 1Gbit")
    return float(match[1]) * UNITS[match[2].lower()]


def why_not():
    """Why namespaces cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "nsenter"):
        if subprocess.run(["sh", "-c", f"command -v {tool}"], stdout=subprocess.DEVNULL).returncode:
            return f"{tool} is not installed"
    name = f"{PREFIX}-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return "no network namespace can be made: " + made.stderr.strip()
    try:
        shaped = subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "lo",
                                 "root", "tbf", "rate", "1gbit", "burst", "256kb", "limit", "1mb"],
                                capture_output=True, text=True)
        return None if shaped.returncode == 0 else "no link can be shaped: " + shaped.stderr.strip()
    finally:
        subprocess.run(["ip", "netns", "del", name])


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def remove(namespace):
    """Ends what still runs in a namespace, then removes it with its links."""
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


def remove_left_behind():
    """Namespaces of a run that was killed before it could remove them."""
    for path in NAMES.glob(f"{PREFIX}-*"):
        maker = path.name.split("-")[1]
        if maker.isdigit() and not pathlib.Path("/proc", maker).exists():
            remove(path.name)


def tasks(names, rate):
    """The hosts of a job whose tasks are each behind a link of `rate` ("1Gbit")."""
    return {name: bits_per_second(rate) for name in names} | {"launcher": UNSHAPED}


def flags(network, names):
    """Those of a `trainyard run` whose tasks are there."""
    found = ["--task-wrapper", " ".join(network.enter("{task}"))]
    for name in names:
        found += ["--task-address", f"{name}={network.addresses[name]}"]
    return found


class Network:
    """Use as a context manager. `hosts` are names with their links, bits per second or UNSHAPED."""

    def __init__(self, hosts):
        self.hosts = dict(hosts)
        self.switch = self.namespace("switch")
        self.addresses = {name: f"10.0.0.{i + 1}" for i, name in enumerate(self.hosts)}

    @staticmethod
    def namespace(host):
        return f"{PREFIX}-{os.getpid()}-{host}"

    @classmethod
    def enter(cls, host):
        """The command that starts what follows it on `host`, in its own process."""
        return ["nsenter", f"--net={NAMES / cls.namespace(host)}"]

    def __enter__(self):
        remove_left_behind()
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        run("ip", "netns", "add", self.switch)
        self.inside(self.switch, "ip", "link", "add", "bridge", "type", "bridge")
        self.inside(self.switch, "ip", "link", "set", "bridge", "up")
        for name, rate in self.hosts.items():
            self.add_host(name, rate)

    def add_host(self, name, rate):
        own = self.namespace(name)
        run("ip", "netns", "add", own)
        run("ip", "link", "add", "eth0", "netns", own, "type", "veth",
            "peer", "name", name, "netns", self.switch)
        self.inside(own, "ip", "link", "set", "lo", "up")
        self.inside(own, "ip", "address", "add", self.addresses[name] + "/24", "dev", "eth0")
        self.inside(self.switch, "ip", "link", "set", name, "master", "bridge", "up")
        if rate is not UNSHAPED:
            self.shape(own, "eth0", rate)
            self.shape(self.switch, name, rate)
        self.inside(own, "ip", "link", "set", "eth0", "up")
        # Not what this machine has chosen for the links it is used to: BBR, for one, gives seven
        # senders to one receiver very unequal shares for seconds.
        self.inside(own, "ip", "route", "replace", "10.0.0.0/24", "dev", "eth0",
                    "src", self.addresses[name], "congctl", "cubic")

    def shape(self, namespace, device, rate):
        self.inside(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf",
                    "rate", f"{rate:.0f}bit", "burst", str(BURST), "limit", str(QUEUE))

    @staticmethod
    def inside(namespace, *command):
        return run("ip", "netns", "exec", namespace, *command)

    def carried(self, name):
        """Bytes that the link of a host has carried: to it, from it."""
        text = self.inside(self.namespace(name), "cat", "/sys/class/net/eth0/statistics/rx_bytes",
                           "/sys/class/net/eth0/statistics/tx_bytes")
        received, sent = text.split()
        return int(received), int(sent)

    def measured(self, seconds=3):
        """What one TCP stream gets between the first two hosts, payload bytes per second."""
        one, two = list(self.hosts)[:2]
        server = subprocess.Popen(self.enter(two) + ["iperf3", "-s", "-1", "--forceflush"],
                                  stdout=subprocess.PIPE, text=True)
        try:
            while "listening on" not in (line := server.stdout.readline()):
                if not line:
                    raise RuntimeError("iperf3 cannot listen")
            text = run(*self.enter(one), "iperf3", "-c", self.addresses[two], "-t", str(seconds),
                       "-O", "1", "-f", "k")
        finally:
            server.kill()
            server.communicate()
        line = [l for l in text.splitlines() if l.rstrip().endswith("receiver")][-1]
        return float(re.search(r"([0-9.]+) Kbits/sec", line)[1]) * 1000 / 8

    def __exit__(self, *_):
        for name in [*self.hosts, "switch"]:
            if (NAMES / self.namespace(name)).exists():
                remove(self.namespace(name))
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and list(NAMES.glob(f"{PREFIX}-{os.getpid()}-*")):
            time.sleep(0.05)
        return False
