"""What makes pods run on a node: containerd, kubelet, kube-proxy, and the way to pods of other nodes."""
import dataclasses
import json
import os
import pathlib
import subprocess

from rig import control_plane, namespaces
from rig.control_plane import NODE_ADDRESS, PODS, PORT

HOME = pathlib.Path("/run/cluster")
PAUSE_IMAGE = "registry.test/pause:1"
INTERFACE = "node0"
PLUGINS = "/usr/lib/cni"
# Kernel settings that a kubelet would change for the whole machine; it is shown these values instead.
KERNEL = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
          "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
          "kernel/keys/root_maxbytes": "25000000"}


@dataclasses.dataclass(frozen=True)
class Node:
    """One node. The first one's programs run in the namespaces of the cluster's first process."""
    name: str
    address: str
    subnet: str  # of its pods
    home: pathlib.Path
    server: str  # the apiserver, for its programs
    namespaces: pathlib.Path | None = None  # the links to them
    alone: bool = True  # in its cluster

    def enter(self):
        """Moves this process to the node."""
        if self.namespaces:
            namespaces.enter(self.namespaces, self.name)
            os.chdir(self.home)

    def nsenter(self):
        """What comes before a command, in the namespaces of the cluster's first process, to run it on the node."""
        return namespaces.nsenter(self.namespaces) if self.namespaces else []

    def program(self, name):
        """What a program is called in log/ and pids/."""
        return f"{self.name}-{name}" if self.namespaces else name

    def start(self, daemons, name, *command):
        daemons.start(self.program(name), *command, preexec_fn=self.enter if self.namespaces else None)

    @property
    def containerd(self):
        """The socket."""
        return self.home / "containerd" / "sock"


FIRST = Node("node1", NODE_ADDRESS, "10.244.0.0/24", HOME, f"https://127.0.0.1:{PORT}")
SECOND = Node("node2", "192.168.77.2", "10.244.1.0/24", HOME / "node2", f"https://{NODE_ADDRESS}:{PORT}",
              HOME / "node2" / "namespaces")
ALL = (FIRST, SECOND)


def of_cluster(count):
    return [dataclasses.replace(node, alone=count == 1) for node in ALL[:count]]


def by_name(name):
    return next(node for node in ALL if node.name == name)


def certificates(authority, node):
    authority.issue(node.name, f"/O=system:nodes/CN=system:node:{node.name}", f"DNS:{node.name},IP:{node.address}")
    authority.kubeconfig(node.name, node.server, node.home / "node.kubeconfig")
    for user in ("proxy", "admin"):
        authority.kubeconfig(user, node.server, node.home / f"{user}.kubeconfig")


# --- network


def ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True)


def first_network():
    """The first node's address sits on a bridge: not every kernel has dummy devices, and there is room for more."""
    ip(f"link add {INTERFACE} type bridge")
    join_network(FIRST)


def join_network(node):
    ip(f"addr add {node.address}/24 dev {INTERFACE}")
    ip(f"link set {INTERFACE} up")
    ip(f"route add {control_plane.SERVICES} dev {INTERFACE}")


def route_pods(other):
    """The way from here to the pods of another node."""
    ip(f"route add {other.subnet} via {other.address}")
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


# --- programs


def start(node, daemons, programs, images):
    """Starts all three."""
    start_containerd(node, daemons, images)
    start_kubelet(node, daemons, programs)
    node.start(daemons, "kube-proxy", programs("kube-proxy"), "--kubeconfig", node.home / "proxy.kubeconfig",
               "--proxy-mode", "iptables", "--cluster-cidr", PODS, "--hostname-override", node.name,
               "--conntrack-max-per-core", 0)


def hide_kernel_settings(home):
    folder = home / "kernel"
    folder.mkdir()
    for name, value in KERNEL.items():
        shown = folder / name.replace("/", ".")
        shown.write_text(value + "\n")
        subprocess.run(["mount", "--bind", str(shown), f"/proc/sys/{name}"], check=True)


def pod_network(node):
    """Pods of several nodes see each other's addresses, not those of the nodes in between."""
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": node.alone, "hairpinMode": True,
         "ipam": {"type": "host-local", "dataDir": str(node.home / "ipam"),
                  "ranges": [[{"subnet": node.subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}}]}


def start_containerd(node, daemons, images):
    home = node.home
    node.containerd.parent.mkdir()
    (home / "cni").mkdir()
    (home / "cni" / "10-bridge.conflist").write_text(json.dumps(pod_network(node)))
    config = home / "containerd.toml"
    config.write_text(f"""version = 2
root = "{home}/containerd/root"
state = "{home}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{node.containerd}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{home}/cni"
""")
    node.start(daemons, "containerd", "containerd", "-c", config)
    daemons.wait_for(node.program("containerd"), lambda: subprocess.run(
        ["ctr", "-a", str(node.containerd), "version"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode == 0)
    for image in images:
        import_image(node.containerd, image)


def import_image(socket, archive):
    """Gives containerd an OCI archive: a path, or an open file."""
    if isinstance(archive, (str, os.PathLike)):
        with open(archive, "rb") as opened:
            return import_image(socket, opened)
    done = subprocess.run(["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", "-"],
                          stdin=archive, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ctr images import: {done.stderr.strip()}")
    return done.stdout


def kubelet_configuration(node):
    home, keys = node.home, HOME / "pki"
    # Beside another node its loss is to be noticed soon, and its return: see control_plane.SEVERAL_NODES.
    heartbeat = {} if node.alone else {"nodeLeaseDurationSeconds": control_plane.LEASE_SECONDS,
                                       "nodeStatusUpdateFrequency": "2s"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{keys}/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{node.containerd}", "cgroupDriver": "cgroupfs",
        "clusterDNS": [NODE_ADDRESS], "clusterDomain": "cluster.local",
        "staticPodPath": f"{home}/manifests", "podLogsDir": f"{home}/pod-logs",
        "failSwapOn": False, "failCgroupV1": False, "enforceNodeAllocatable": [],
        "tlsCertFile": f"{keys}/{node.name}.crt", "tlsPrivateKeyFile": f"{keys}/{node.name}.key",
        # A disk that is nearly full is no reason to throw away images that cannot be fetched again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": False,
        "kubeAPIQPS": 500, "kubeAPIBurst": 500, "serializeImagePulls": False, "maxPods": 250,
        "syncFrequency": "10s", "volumePluginDir": f"{home}/volume-plugins",
        "resolvConf": str(empty_file(home / "resolv.conf")), **heartbeat}


def start_kubelet(node, daemons, programs):
    home = node.home
    (home / "kubelet").mkdir()
    (home / "manifests").mkdir()
    (home / "kubelet.json").write_text(json.dumps(kubelet_configuration(node)))
    node.start(daemons, "kubelet", programs("kubelet"), "--config", home / "kubelet.json",
               "--kubeconfig", home / "node.kubeconfig", "--hostname-override", node.name,
               "--node-ip", node.address, "--root-dir", home / "kubelet")


def empty_file(path):
    path.write_text("")
    return path


def is_ready(api, node):
    status, answer = api.get(f"/api/v1/nodes/{node.name}")
    if status != 200:
        return False
    conditions = {c["type"]: c["status"] for c in answer["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not answer["spec"].get("taints", [])


def missing():
    """Debian packages of this part that are not installed."""
    needed = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "iptables": "iptables"}
    absent = {package for program, package in needed.items() if not _which(program)}
    if not os.access(f"{PLUGINS}/bridge", os.X_OK):
        absent.add("containernetworking-plugins")
    return sorted(absent)


def _which(program):
    folders = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"]
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders)
