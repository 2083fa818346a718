"""TrainingJobs for scenarios, small and quick to write down."""
from rig.merge_patch import merged

API = "trainyard.dev/v1alpha1"
TRAINING = {"model": {"name": "mlp"},
            "data": {"format": "synthetic", "shape": [4, 4, 1], "classes": 2, "samples": 10},
            "batchSize": 1, "steps": 1, "optimizer": {"name": "SGD", "learningRate": 0.1}}


def job(name="demo", ps=1, workers=2, spec=None):
    """A job of the built-in runtime; `spec` is a merge patch of what stands below spec."""
    made = {"worker": {"replicas": workers}, "training": TRAINING}
    if ps:
        made["ps"] = {"replicas": ps}
    return {"apiVersion": API, "kind": "TrainingJob", "metadata": {"name": name},
            "spec": merged(made, spec or {})}


def foreign(name="demo", ps=1, workers=2, spec=None):
    """A job of programs of the user's own. Without parameter servers: strategy AllReduce."""
    template = {"spec": {"containers": [{"name": "task", "image": "registry.test/user:1",
                                         "command": ["/bin/program", "--ps=$(PS_HOSTS)"]}]}}
    made = {"worker": {"replicas": workers, "template": template}}
    if ps:
        made["ps"] = {"replicas": ps, "template": template}
    else:
        made["strategy"] = "AllReduce"
    return {"apiVersion": API, "kind": "TrainingJob", "metadata": {"name": name},
            "spec": merged(made, spec or {})}
