"""The jobs that the pictures of dashboards show, small enough for one machine together."""

import json

FASHION = "/usr/share/datasets/fashion-mnist"
# Computing takes so long for everybody, and longer for one worker while the file is there.
PACE = "worker.compute=delay({slow}),task={task},while={file};worker.compute=delay({delay})"
COLUMNS = [{"name": "user", "kind": "Id", "ids": 100000}, {"name": "item", "kind": "Id", "ids": 5000},
           {"name": "click", "kind": "Label"}]


def job(name, training, workers=2, servers=2, **spec):
    made = {"worker": {"replicas": workers}, "training": training, **spec}
    made |= {"ps": {"replicas": servers}} if servers else {"strategy": "AllReduce"}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": made}


def common(steps, **more):
    """Nothing goes through shared memory, which several machines have not."""
    return {"steps": steps, "batchSize": 64, "evaluateEverySteps": 50, "checkpoint": {"everySeconds": 15, "keep": 2},
            "sharedMemory": "Never", **more}


def fashion(steps):
    """Parameter servers, on real images."""
    data = {"format": "idx", "images": "/data/train-images-idx3-ubyte.gz", "labels": "/data/train-labels-idx1-ubyte.gz",
            "evalImages": "/data/t10k-images-idx3-ubyte.gz", "evalLabels": "/data/t10k-labels-idx1-ubyte.gz"}
    claim = {"persistentVolumeClaim": {"claimName": "fashion-mnist"}}
    # Seldom enough that a return to one costs steps.
    checkpoint = {"everySeconds": 40, "keep": 2}
    return job("fashion", common(steps, model={"name": "mlp", "hidden": [128]}, data=data, checkpoint=checkpoint,
                                 optimizer={"name": "SGD", "learningRate": 0.05}),
               volumes=[{"name": "data", "mountPath": "/data", "volume": claim}],
               storage={"volume": {"persistentVolumeClaim": {"claimName": "fashion-job"}}})


def ring():
    """Workers alone; small buckets, some of which are on their way before the backward pass is over."""
    data = {"format": "synthetic", "shape": [16, 16, 1], "classes": 10, "samples": 8192, "evalSamples": 256}
    return job("ring", common(100000, model={"name": "mlp", "hidden": [512, 512, 256]}, data=data,
                              allReduce={"bucketBytes": 1 << 18}, optimizer={"name": "SGD", "learningRate": 0.01}), workers=3, servers=0)


def clicks():
    """Embedding tables: of one, ids that come once get no row and those that stay away lose it; the other becomes full."""
    tables = [{"name": "user", "features": ["user"], "dim": 8, "rows": {"max": 200000}, "admit": {"occurrences": 2},
               "evict": {"afterSteps": 300, "everySteps": 50}},
              {"name": "wide", "features": ["user", "item"], "dim": 1, "rows": {"max": 12000}, "onFull": "RefuseNew"}]
    return job("clicks", common(100000, model={"name": "wide_and_deep", "hidden": [16]}, tables=tables,
                                data={"format": "synthetic_ctr", "columns": COLUMNS, "samples": 1000000, "evalSamples": 256},
                                optimizer={"name": "Adagrad", "learningRate": 0.05}))


def small(name, **spec):
    """One that is in the cluster alone, where no program of it runs."""
    data = {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 1024}
    return job(name, {"model": {"name": "mlp"}, "data": data, "batchSize": 8, "steps": 1000,
                      "optimizer": {"name": "SGD", "learningRate": 0.1}}, servers=1, **spec)


def text(one):
    return json.dumps(one)


def pace(delay, slow, task, file):
    return PACE.format(delay=delay, slow=slow, task=task, file=file)
