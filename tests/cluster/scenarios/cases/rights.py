"""Scenario 71: the rights that the chart gives are enough, and none of them is in vain."""
import json
import os
import re
import subprocess
import urllib.parse

from harness.jobs import foreign
from harness.processes import Proxy
from harness.world import ROOT
from rig import build

VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
# Given for other apiservers' sake, not used in a request to this one: whoever sets owner references that block a
# deletion must be allowed to update the owner's finalizers, where an apiserver checks that; where a watch cannot
# begin with what there is, it is listed first; and OpenShift asks for a right of its own to tell of pods' addresses. Used,
# but not here: these pods' addresses are loopback ones, which reach nobody else and have no names (e2e_foreign has some).
NEVER_ASKED = {("trainyard.dev", "trainingjobs/finalizers", "update"), ("trainyard.dev", "trainingjobs", "list"),
               ("", "pods", "list"), ("", "configmaps", "list"),
               ("discovery.k8s.io", "endpointslices/restricted", "create"),
               *(("discovery.k8s.io", "endpointslices", verb) for verb in ("get", "create", "patch"))}


def asked(request):
    """(group, resource, verb) that a request needs."""
    url = urllib.parse.urlsplit(request["target"])
    parts = url.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = rest[0] + (f"/{rest[2]}" if len(rest) > 2 else "")
    verb = VERBS.get(request["method"])
    if verb is None:
        verb = "get" if len(rest) > 1 else "watch" if "watch=true" in url.query else "list"
    return group, resource, verb


def granted(roles):
    return {(group, resource, verb) for role in roles for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]}


def rendered(system, release, watched):
    """What the chart has for rights, as objects."""
    done = subprocess.run(
        [build.find("helm"), "template", release, ROOT / "helm" / "trainyard", "--namespace", system,
         "--kube-version", "1.34.0", "--set", f"watchNamespace={watched}", "-s", "templates/rbac.yaml",
         "-s", "templates/serviceaccount.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    program = f"{os.environ['TRAINYARD_BIN']}/yaml_to_json"
    texts = [text for text in re.split(r"^---$", done.stdout, flags=re.M) if re.sub(r"#.*", "", text).strip()]
    return [json.loads(subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout)
            for text in texts]


def path_of(found):
    group = found["apiVersion"].rpartition("/")[0]
    base = f"/apis/{found['apiVersion']}" if group else "/api/v1"
    space = found["metadata"].get("namespace")
    return base + (f"/namespaces/{space}" if space else "") + f"/{found['kind'].lower()}s/{found['metadata']['name']}"


def as_account(case, system, account, folder):
    """A kubeconfig of the service account."""
    token = case.api.ask("POST", f"/api/v1/namespaces/{system}/serviceaccounts/{account}/token",
                         {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    config = json.loads(case.world.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    made = folder / "account.kubeconfig"
    made.write_text(json.dumps(config))
    return made


def take(case, kind, body):
    """Somebody else's object, of a name that the job needs."""
    return case.api.ask("POST", case.path(kind), body)


def whole_life(case, proxy, operator):
    """A job in which every right is used: names that are taken, losses, scaling, suspension, the end of its time."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    foreigners = {"configmaps": {"metadata": {"name": "demo-membership"}},
                  "services": {"metadata": {"name": "demo"}, "spec": {"ports": [{"port": 1}]}},
                  "pods": {"metadata": {"name": "demo-ps-0"},
                           "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "registry.test/c"}]}},
                  "persistentvolumeclaims": {"metadata": {"name": "data-demo-worker-0"}, "spec": claim}}
    for kind, body in foreigners.items():
        take(case, kind, body)
    case.create("trainingjobs", foreign(spec={
        "runPolicy": {"ttlSecondsAfterFinished": 1},
        "worker": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
                   "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}}))
    for kind, body in foreigners.items():
        name = body["metadata"]["name"]
        case.wait(f"{kind} {name} to be in the way", lambda name=name: name in case.condition("Reconciling").get("message", ""))
        case.delete(name, kind=kind)
    case.wait_state("Running")
    case.finish("worker-1", 137)
    case.wait_life("worker-1", 2)
    case.wait_state("Running")
    service = case.path("services", "demo")
    case.api.merge(service, {"spec": {"publishNotReadyAddresses": False}})
    case.wait("the Service as it was", lambda: case.get("services", "demo")["spec"].get("publishNotReadyAddresses"))
    case.scale(3)
    case.wait_pods(["ps-0", "worker-0", "worker-1", "worker-2"])
    case.edit({"runPolicy": {"suspend": True}})
    case.wait_state("Suspended")
    # The kubelet's writes come between the operator's reading and writing: it reads again.
    case.edit({"runPolicy": {"suspend": False},
               "worker": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}})
    case.wait_state("Running")
    case.scale(2)
    case.wait("a claim to go", lambda: case.get("persistentvolumeclaims", "data-demo-worker-2") is None)
    refusal = json.dumps({"kind": "Status", "code": 409, "reason": "Conflict"})
    proxy.inject("answer", method="PATCH", target="/pods/", times=1, status=409, body=refusal)
    case.finish("worker-0")
    case.wait_gone()
    case.wait("the pods to go", lambda: not case.pods())
    # A job that goes under its pods.
    case.create("trainingjobs", foreign("other"))
    case.wait_state("Running", "other")
    case.delete("other")
    case.wait("all of it to go", lambda: case.job("other") is None and not case.pods("other"))
    case.true(operator.alive(), "it goes on")
    case.equal([], re.findall(r".* cannot \w+ resource .*", operator.text())[:3], "what was refused")


def scenario_71_rbac_minimal(case):
    system = f"{case.ns}-system"
    case.make_namespace(system)
    cluster_wide = []
    try:
        for watched in ("", case.ns):
            release = f"{case.ns}-{'one' if watched else 'all'}"
            found = rendered(system, release, watched)
            for thing in found:
                case.api.ask("PATCH", f"{path_of(thing)}?fieldManager=tests&force=true",
                             json.dumps(thing).encode(), "application/apply-patch+yaml")
                if not thing["metadata"].get("namespace"):
                    cluster_wide.append(path_of(thing))
            roles = [thing for thing in found if thing["kind"] in ("Role", "ClusterRole")]
            case.equal({"Role"} if watched else {"Role", "ClusterRole"}, {role["kind"] for role in roles})
            account = next(t["metadata"]["name"] for t in found if t["kind"] == "ServiceAccount")
            folder = case.folder / release
            folder.mkdir(parents=True)
            proxy = Proxy(folder / "proxy", as_account(case, system, account, folder))
            case.to_close.insert(0, proxy)
            lease = next(role for role in roles if role["metadata"]["name"].endswith("-leader"))
            name, root = (rule["resourceNames"][0] for rule in lease["rules"] if "resourceNames" in rule)
            operator = case.operator("--leader-elect", "--lease-name", name, "--lease-namespace", system, "--root-secret-name", root,
                                     "--shared-objects-interval", 1,
                                     "--lease-duration", 90, "--renew-deadline", 60,  # not what is tried here
                                     *(["--namespace", watched] if watched else []),
                                     kubeconfig=proxy.kubeconfig, scope=False)
            whole_life(case, proxy, operator)
            case.equal(0, operator.stop())
            used = {asked(request) for request in proxy.requests()}
            given = granted(roles)
            case.equal(set(), used - given, "asked for without a right")
            case.equal(set(), given - used - NEVER_ASKED, "rights that nothing needs")
    finally:
        for path in cluster_wide:
            case.api.request("DELETE", path)
        case.world.remove_namespace(system)


# Its first operator looks after all namespaces, the other scenarios' too.
scenario_71_rbac_minimal.alone = True
