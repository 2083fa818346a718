"""etcd, kube-apiserver and kube-controller-manager: what `apiserver` tests need."""
from rig import pki
from rig.api import Api

NODE_ADDRESS = "192.168.77.1"
SERVICES = "10.96.0.0/16"
FIRST_SERVICE = "10.96.0.1"
PODS = "10.244.0.0/16"
PORT = 6443
# A node is lost when it has not renewed its lease for 12 s; its kubelet does so each quarter of the lease's time.
# The rate: a node that is lost twice in a row is not to wait 10 s for its taint.
LEASE_SECONDS = 8
# The nodes know their subnets; the controller gives them in no sure order, and leaves some out.
SEVERAL_NODES = ("--node-monitor-period=1s", "--node-monitor-grace-period=12s", "--node-eviction-rate=10",
                 "--allocate-node-cidrs=false")
NAMES = "kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local localhost"


def certificates(home):
    """The certificate authority in home/pki, and a kubeconfig of each program."""
    authority = pki.Authority(home / "pki")
    alternatives = [f"DNS:{name}" for name in NAMES.split()]
    alternatives += [f"IP:{ip}" for ip in ("127.0.0.1", FIRST_SERVICE, NODE_ADDRESS)]
    authority.issue("apiserver", "/CN=kube-apiserver", ",".join(alternatives))
    authority.service_account_key()
    users = {"admin": "/O=system:masters/CN=admin",
             "controller-manager": "/CN=system:kube-controller-manager"}
    for name, subject in users.items():
        user(authority, home, name, subject)
    return authority


def user(authority, home, name, subject, alternatives=""):
    authority.issue(name, subject, alternatives or f"DNS:{name}")
    authority.kubeconfig(name, f"https://127.0.0.1:{PORT}", home / f"{name}.kubeconfig")


def start(home, daemons, programs, several_nodes=False):
    """Starts all three and returns the Api once the apiserver is ready."""
    keys = home / "pki"
    daemons.start("etcd", programs("etcd"), "--data-dir", home / "etcd", "--unsafe-no-fsync",
                  "--log-level", "warn", "--auto-compaction-retention", "5m")
    daemons.start(
        "kube-apiserver", programs("kube-apiserver"), "--etcd-servers", "http://127.0.0.1:2379",
        "--secure-port", PORT, "--bind-address", "0.0.0.0", "--advertise-address", NODE_ADDRESS,
        "--tls-cert-file", keys / "apiserver.crt", "--tls-private-key-file", keys / "apiserver.key",
        "--client-ca-file", keys / "ca.crt", "--service-account-key-file", keys / "sa.pub",
        "--service-account-signing-key-file", keys / "sa.key",
        "--service-account-issuer", "https://kubernetes.default.svc",
        "--service-cluster-ip-range", SERVICES, "--authorization-mode", "Node,RBAC",
        "--allow-privileged", "--kubelet-client-certificate", keys / "admin.crt",
        "--kubelet-client-key", keys / "admin.key", "--kubelet-certificate-authority", keys / "ca.crt",
        "--kubelet-preferred-address-types", "InternalIP")
    api = Api(home / "admin.kubeconfig")
    daemons.wait_for("kube-apiserver", lambda: api.get("/readyz")[0] == 200)
    daemons.start(
        "kube-controller-manager", programs("kube-controller-manager"),
        "--kubeconfig", home / "controller-manager.kubeconfig",
        "--service-account-private-key-file", keys / "sa.key", "--root-ca-file", keys / "ca.crt",
        "--use-service-account-credentials", "--allocate-node-cidrs", "--cluster-cidr", PODS,
        # A claim that was not bound at once is looked at again this often, instead of each 15 s.
        "--pvclaimbinder-sync-period=500ms",
        "--leader-elect=false", "--kube-api-qps", 1000, "--kube-api-burst", 1000,
        *(SEVERAL_NODES if several_nodes else ()))
    daemons.wait_for("the default namespace's service account", lambda: api.get(
        "/api/v1/namespaces/default/serviceaccounts/default")[0] == 200)
    return api
