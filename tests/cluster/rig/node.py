"""What makes pods run: scheduler, containerd, kubelet, kube-proxy, CoreDNS, on one node."""
import json
import os
import pathlib
import subprocess

from rig import control_plane
from rig.control_plane import NODE_ADDRESS, PODS

PAUSE_IMAGE = "registry.test/pause:1"
NODE = "node1"
PLUGINS = "/usr/lib/cni"
# Kernel settings that a kubelet would change for the whole machine; it is shown these values instead.
KERNEL = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
          "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
          "kernel/keys/root_maxbytes": "25000000"}


def certificates(authority, home):
    control_plane.user(authority, home, "scheduler", "/CN=system:kube-scheduler")
    control_plane.user(authority, home, "proxy", "/CN=system:kube-proxy")
    control_plane.user(authority, home, "node", f"/O=system:nodes/CN=system:node:{NODE}",
                       f"DNS:{NODE},IP:{NODE_ADDRESS}")


def network():
    """The node's address sits on a bridge: not every kernel has dummy devices."""
    for command in ("ip link add node0 type bridge", f"ip addr add {NODE_ADDRESS}/24 dev node0",
                    "ip link set node0 up", f"ip route add {control_plane.SERVICES} dev node0"):
        subprocess.run(command.split(), check=True)


def hide_kernel_settings(home):
    folder = home / "kernel"
    folder.mkdir()
    for name, value in KERNEL.items():
        shown = folder / name.replace("/", ".")
        shown.write_text(value + "\n")
        subprocess.run(["mount", "--bind", str(shown), f"/proc/sys/{name}"], check=True)


def start_containerd(home, daemons, images):
    socket = home / "containerd" / "sock"
    socket.parent.mkdir()
    (home / "cni").mkdir()
    (home / "cni" / "10-bridge.conflist").write_text(json.dumps({
        "cniVersion": "1.0.0", "name": "pods", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
             "ipam": {"type": "host-local", "dataDir": str(home / "ipam"),
                      "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": True}}]}))
    config = home / "containerd.toml"
    config.write_text(f"""version = 2
root = "{home}/containerd/root"
state = "{home}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{home}/cni"
""")
    daemons.start("containerd", "containerd", "-c", config)
    daemons.wait_for("containerd", lambda: subprocess.run(
        ["ctr", "-a", str(socket), "version"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode == 0)
    for image in images:
        import_image(socket, image)
    return socket


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


def start(home, daemons, programs, api, images):
    """Starts everything and returns when pods can run."""
    daemons.start("kube-scheduler", programs("kube-scheduler"), "--kubeconfig", home / "scheduler.kubeconfig",
                  "--leader-elect=false", "--kube-api-qps", 1000, "--kube-api-burst", 1000)
    socket = start_containerd(home, daemons, images)
    start_kubelet(home, daemons, programs, socket)
    (home / "Corefile").write_text(
        f".:53 {{\n bind {NODE_ADDRESS}\n errors\n kubernetes cluster.local {{\n"
        f"  kubeconfig {home}/admin.kubeconfig\n  ttl 5\n  pods insecure\n }}\n cache 5\n}}\n")
    daemons.start("coredns", programs("coredns"), "-conf", home / "Corefile")
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    status, answer = api.request("POST", binding, {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "node-proxier"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "system:node-proxier"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}]})
    if status != 201:
        raise OSError(f"POST {binding}: {status}: {answer}")
    daemons.start("kube-proxy", programs("kube-proxy"), "--kubeconfig", home / "proxy.kubeconfig",
                  "--proxy-mode", "iptables", "--cluster-cidr", PODS, "--hostname-override", NODE,
                  "--conntrack-max-per-core", 0)
    daemons.wait_for("the node", lambda: node_is_ready(api))


def start_kubelet(home, daemons, programs, socket):
    hide_kernel_settings(home)
    pathlib.Path(home, "kubelet").mkdir()
    pathlib.Path(home, "manifests").mkdir()
    (home / "kubelet.json").write_text(json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                           "x509": {"clientCAFile": f"{home}/pki/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{socket}", "cgroupDriver": "cgroupfs",
        "clusterDNS": [NODE_ADDRESS], "clusterDomain": "cluster.local",
        "staticPodPath": f"{home}/manifests", "podLogsDir": f"{home}/pod-logs",
        "failSwapOn": False, "failCgroupV1": False, "enforceNodeAllocatable": [],
        "tlsCertFile": f"{home}/pki/node.crt", "tlsPrivateKeyFile": f"{home}/pki/node.key",
        # A disk that is nearly full is no reason to throw away images that cannot be fetched again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "localStorageCapacityIsolation": False,
        "kubeAPIQPS": 500, "kubeAPIBurst": 500, "serializeImagePulls": False, "maxPods": 250,
        "syncFrequency": "10s", "volumePluginDir": f"{home}/volume-plugins",
        "resolvConf": str(empty_file(home / "resolv.conf"))}))
    daemons.start("kubelet", programs("kubelet"), "--config", home / "kubelet.json",
                  "--kubeconfig", home / "node.kubeconfig", "--hostname-override", NODE,
                  "--node-ip", NODE_ADDRESS, "--root-dir", home / "kubelet")


def empty_file(path):
    path.write_text("")
    return path


def node_is_ready(api):
    status, node = api.get(f"/api/v1/nodes/{NODE}")
    if status != 200:
        return False
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    taints = node["spec"].get("taints", [])
    return conditions.get("Ready") == "True" and not taints


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
