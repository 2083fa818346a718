"""The operators that are measured: how each is installed, started and given a job."""
import pathlib
import secrets

import fleet
import observe

PS = 2
METRICS = "http://127.0.0.1:8080/metrics"


class Ours:
    """Trainyard's, with jobs of users' own programs, as the peer's are: each has a Service."""
    name = "trainyard"
    path = f"/apis/trainyard.dev/v1alpha1/namespaces/{fleet.NAMESPACE}/trainingjobs"
    controller = ("controller", "trainingjob")

    def __init__(self, program, arguments=()):
        self.program = program
        self.arguments = arguments

    def install(self, rig):
        rig.define((fleet.ROOT / "deploy" / "crds.yaml").read_text(encoding="utf-8"))

    def flags(self, rig, port):
        """How it is started; the root secret is made with the first one."""
        secret = rig.out / "root-secret"
        if not secret.exists():
            secret.write_bytes(secrets.token_bytes(32))
        return ("--agent-image", "agent:1", "--runtime-image", "runtime:1", "--root-secret", secret,
                "--metrics-port", port, "--log-format", "text", *self.arguments)

    def start(self, rig):
        process = rig.start(self.name, self.program, *self.flags(rig, 8080))
        rig.wait("the operator", lambda: rig.cluster.fetch("http://127.0.0.1:8080/readyz").strip() == "ok")
        return process

    def job(self, name, tasks):
        def template(replicas):
            container = {"name": "task", "command": ["/bin/train"]}
            return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
        return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                "spec": {"ps": template(PS), "worker": template(tasks - PS)}}


class OurModels(Ours):
    """Jobs whose model is ours: they have a coordinator, and no Service."""
    name = "trainyard-models"

    def job(self, name, tasks):
        training = {"model": {"name": "mlp"}, "batchSize": 8, "steps": 1000000000,
                    "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                    "optimizer": {"name": "SGD", "learningRate": 0.01}}
        return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                "spec": {"ps": {"replicas": PS}, "worker": {"replicas": tasks - PS}, "training": training}}


class Kubeflow:
    """Kubeflow's training operator, by the path of its binary; its definition of TFJob and its webhook come
    from the module beside it. Outside of a pod it needs to be told where its certificates are."""
    name = "training-operator"
    path = f"/apis/kubeflow.org/v1/namespaces/{fleet.NAMESPACE}/tfjobs"
    controller = ("controller", "tfjob-controller")
    space = "kubeflow"
    secret = "training-operator-webhook-cert"
    host = "training-operator.kubeflow.svc"

    def __init__(self, program):
        self.program = pathlib.Path(program).resolve()
        self.manifests = self.program.parent.parent / "module"

    def install(self, rig):
        rig.define((self.manifests / "crds" / "kubeflow.org_tfjobs.yaml").read_text(encoding="utf-8"))
        rig.namespace(self.space)
        rig.must("POST", f"/api/v1/namespaces/{self.space}/secrets", {"metadata": {"name": self.secret}})
        # The apiserver finds it by name on this machine, since no proxy serves addresses of Services here.
        rig.cluster.inside("sh", "-c", f"echo 127.0.0.1 {self.host} >> /etc/hosts", check=True)
        hook = {"name": "validator.tfjob.training-operator.kubeflow.org", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://{self.host}:9443/validate-kubeflow-org-v1-tfjob"},
                "failurePolicy": "Fail", "sideEffects": "None",
                "rules": [{"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"],
                           "operations": ["CREATE", "UPDATE"], "resources": ["tfjobs"]}]}
        rig.must("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                 {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [hook]})

    def start(self, rig):
        certificates = rig.out / "certificates"
        certificates.mkdir(exist_ok=True)
        place = "/tmp/k8s-webhook-server/serving-certs"
        # The place where a pod would have them, in mounts of its own.
        script = (f"mount -t tmpfs tmpfs /tmp && mkdir -p {place} && mount --bind /proc/self/fd/9 {place} && "
                  'exec "$@"')
        process = rig.start(self.name, "unshare", "--mount", "sh", "-c", f'exec 9<"$0"; {script}', certificates,
                            self.program, "--enable-scheme=tfjob", "--zap-log-level=error")
        data = {}

        def issued():
            found = rig.api.get(f"/api/v1/namespaces/{self.space}/secrets/{self.secret}")[1].get("data") or {}
            data.update(found)
            return "tls.crt" in data
        rig.wait("the webhook's certificate", issued)
        write_certificates(certificates, data)
        rig.wait("the operator", lambda: rig.cluster.fetch("http://127.0.0.1:8081/readyz").strip() == "ok")

        def takes_jobs():
            status, _ = rig.api.request("POST", self.path + "?dryRun=All", self.job("try", 8))
            return status == 201
        rig.wait("the webhook", takes_jobs)
        return process

    def job(self, name, tasks):
        def role(replicas):
            container = {"name": "tensorflow", "image": "train:1", "command": ["/bin/train"]}
            return {"replicas": replicas, "restartPolicy": "ExitCode",
                    "template": {"spec": {"containers": [container]}}}
        return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name},
                "spec": {"tfReplicaSpecs": {"PS": role(PS), "Worker": role(tasks - PS)}}}


def write_certificates(folder, data):
    import base64
    for name, text in data.items():
        (folder / name).write_bytes(base64.b64decode(text))


def reconciles(rig, operator):
    """Its histogram of reconcile times so far, in seconds."""
    return observe.histogram(rig.cluster.fetch(METRICS), "controller_runtime_reconcile_time_seconds",
                             operator.controller)
