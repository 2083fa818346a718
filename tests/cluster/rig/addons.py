"""What pods need once in a cluster, on the first node: scheduler, names (CoreDNS), the rights of kube-proxy."""
from rig import control_plane
from rig.control_plane import NODE_ADDRESS


def certificates(authority, home):
    control_plane.user(authority, home, "scheduler", "/CN=system:kube-scheduler")
    authority.issue("proxy", "/CN=system:kube-proxy", "DNS:proxy")


def start(home, daemons, programs, api):
    daemons.start("kube-scheduler", programs("kube-scheduler"), "--kubeconfig", home / "scheduler.kubeconfig",
                  "--leader-elect=false", "--kube-api-qps", 1000, "--kube-api-burst", 1000)
    (home / "Corefile").write_text(
        f".:53 {{\n bind {NODE_ADDRESS}\n errors\n kubernetes cluster.local {{\n"
        f"  kubeconfig {home}/admin.kubeconfig\n  ttl 5\n  pods insecure\n }}\n cache 5\n}}\n")
    daemons.start("coredns", programs("coredns"), "-conf", home / "Corefile")
    allow_proxies(api)


def allow_proxies(api):
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    status, answer = api.request("POST", binding, {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "node-proxier"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "system:node-proxier"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-proxy"}]})
    if status != 201:
        raise OSError(f"POST {binding}: {status}: {answer}")
