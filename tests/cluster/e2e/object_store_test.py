#!/usr/bin/env python3
"""Jobs whose checkpoints are in an object store, of which their pods have nothing else: the store goes away for a
while, and all pods at once; and pods that have no keys, but a service account."""
import base64
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

from world import build, world
from rig import control_plane, identity, object_store, unavailable

BIN = pathlib.Path(os.environ["TRAINYARD_BIN"])
SPACE = "stored"
NAME = "kept"
LENT = "lent"  # the job by_account
PORT = 9000
FAILED = r"checkpoint at step \d+ failed, training goes on.*s3://"
BEGINS = r"epoch \d+ starts at step (\d+) with"
DOWN_STEPS = 150  # at 0.1 s

# By which the store checks tokens of service accounts; without it, it would need one itself.
KEYS_ARE_PUBLIC = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                   "metadata": {"name": "keys-of-service-accounts"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                               "name": "system:service-account-issuer-discovery"},
                   "subjects": [{"kind": "Group", "name": "system:unauthenticated", "apiGroup": "rbac.authorization.k8s.io"}]}


def job(name, store, template):
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"storage": {"s3": {"bucket": object_store.BUCKET, **store}},
                     "ps": {"replicas": 2, **template}, "worker": {"replicas": 1, **template},
                     "training": {"model": {"name": "mlp", "hidden": [32], "simulatedStepSeconds": 0.1},
                                  "data": {"format": "synthetic", "shape": [8, 8, 1], "classes": 4, "samples": 4096},
                                  "batchSize": 8, "steps": 100000, "optimizer": {"name": "Adam", "learningRate": 0.01},
                                  "checkpoint": {"everySeconds": 2, "keep": 2}}}}


def by_secret(endpoint):
    return job(NAME, {"endpoint": endpoint, "secretName": "keys", "caKey": "ca.crt"}, {})


def by_account(endpoint):
    """Of pods that are lent keys by the store's token service, for what the apiserver says of them."""
    told = {"AWS_ROLE_ARN": identity.ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": "/proof/token", "AWS_ENDPOINT_URL_STS": endpoint,
            "AWS_CA_BUNDLE": "/proof/ca.crt"}
    token = {"serviceAccountToken": {"audience": identity.CLIENT, "expirationSeconds": 600, "path": "token"}}
    authority = {"secret": {"name": "keys", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    container = {"name": "task", "env": [{"name": name, "value": value} for name, value in told.items()],
                 "volumeMounts": [{"name": "proof", "mountPath": "/proof", "readOnly": True}]}
    template = {"spec": {"serviceAccountName": "trainer", "containers": [container],
                         "volumes": [{"name": "proof", "projected": {"sources": [token, authority]}}]}}
    return job(LENT, {"endpoint": endpoint}, {"template": template})


class Stored(unittest.TestCase):
    world = None
    store = None

    @classmethod
    def setUpClass(cls):
        cls.kubectl = cls.world.cluster.kubectl
        secrets = {**cls.store.environment(), "ca.crt": pathlib.Path(cls.store.ca()).read_text()}
        cls.world.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
                         "data": {key: base64.b64encode(value.encode()).decode() for key, value in secrets.items()}},
                        by_secret(f"https://{cls.store.address}"), namespace=SPACE)

    def checkpoint(self, name=NAME):
        return self.world.status(name, SPACE).get("checkpoint", {}).get("step", -1)

    def lost(self):
        return self.world.status(NAME, SPACE).get("lostSteps", 0)

    def step(self):
        return self.world.status(NAME, SPACE).get("progress", {}).get("step", -1)

    def await_checkpoint(self, after):
        self.world.wait(f"a checkpoint after step {after}", lambda: self.checkpoint() > after)

    def warnings(self, pattern):
        log = self.kubectl("logs", f"{NAME}-ps-0", "-n", SPACE)
        return [line for line in log.splitlines() if re.search(pattern, line)]

    def goes_on_from(self, step):
        """A job that began anew would tell of earlier checkpoints first: one is due every 2 s."""
        seen = []
        self.world.wait(f"a checkpoint after step {step}", lambda: seen.append(self.checkpoint()) or seen[-1] > step)
        self.assertGreaterEqual(min(seen), step)

    def recorded(self):
        """The steps in the chief's metrics.jsonl, which its pod does not keep."""
        lines = self.store.get(f"{SPACE}/{NAME}/records/metrics.jsonl") or b""
        return [json.loads(line)["step"] for line in lines.splitlines()]

    def uids(self):
        return {pod["metadata"]["uid"] for pod in self.world.pods(NAME, SPACE).values()}

    def trainyard(self, *words):
        environment = [f"{name}={value}" for name, value in self.store.environment().items()]
        return self.world.cluster.inside("env", *environment, BIN / "trainyard", *words)

    def test_1_checkpoints_are_objects(self):
        self.await_checkpoint(0)
        self.assertIs(True, self.world.status(NAME, SPACE)["checkpoint"]["durable"])
        told = self.trainyard("checkpoint", "inspect", f"s3://{object_store.BUCKET}/{SPACE}/{NAME}")
        self.assertEqual(0, told.returncode, told.stderr)
        self.assertRegex(told.stdout, r"(?m)^ +\d+ +1 +2 .* ok$")
        wrong = self.trainyard("checkpoint", "inspect", f"s3://{object_store.BUCKET}/{SPACE}/other")
        self.assertEqual(2, wrong.returncode, wrong)
        self.assertIn("holds no checkpoint", wrong.stderr)
        self.world.wait("what the chief has recorded", self.recorded)

    def test_1_pods_of_a_service_account_need_no_keys(self):
        self.world.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}},
                         by_account(f"https://{self.store.address}"), namespace=SPACE)
        self.world.wait("its checkpoint", lambda: self.checkpoint(LENT) > 0)
        told = self.trainyard("checkpoint", "inspect", f"s3://{object_store.BUCKET}/{SPACE}/{LENT}")
        self.assertRegex(told.stdout, r"(?m)^ +\d+ +1 +2 .* ok$")
        pod = self.kubectl("get", "pod", f"{LENT}-ps-0", "-n", SPACE, "-o", "yaml")
        self.assertNotIn("AWS_SECRET_ACCESS_KEY", pod)
        self.kubectl("delete", "trainingjob", LENT, "-n", SPACE)

    def test_2_the_store_goes_away(self):
        """Training goes on, and the log says it once."""
        self.store.stop()
        self.world.wait_steps(NAME, SPACE, DOWN_STEPS)
        self.world.wait("the log to say so", lambda: self.warnings(FAILED), 120)
        self.world.wait_steps(NAME, SPACE, DOWN_STEPS)
        said = self.warnings(FAILED)
        self.assertEqual(1, len(said), said)
        print(said[0], flush=True)
        before = self.checkpoint()
        self.store.start()
        self.await_checkpoint(before)
        self.assertEqual(0, self.lost())

    def test_3_all_pods_are_killed_while_it_is_away(self):
        """The checkpoint is all that is left. As long as nobody can read it, the job does not begin anew."""
        self.await_checkpoint(self.checkpoint())
        self.store.stop()
        self.world.wait_steps(NAME, SPACE, DOWN_STEPS)  # so that the record is of after the last checkpoint
        kept, known, killed = self.checkpoint(), self.step(), self.uids()
        self.kubectl("delete", "pods", "--all", "-n", SPACE, "--force", "--grace-period=0")
        self.world.wait("ps-0 to wait", lambda: self.warnings("waits for the checkpoints"), 180)
        self.world.wait("the former pods to be gone", lambda: not killed & self.uids())
        self.store.start()
        self.goes_on_from(kept)
        # The store may have kept one more checkpoint than it could tell of before it was killed.
        begins = self.world.wait("the second life's first epoch", lambda: self.warnings(BEGINS))
        first = int(re.search(BEGINS, begins[0])[1])
        self.assertGreaterEqual(first, kept)
        self.world.wait(f"{known - first} lost steps of {known}", lambda: self.lost() >= known - first, 60)
        self.world.wait("records of the chief's second life", lambda: self.recorded()[-1] > known)
        self.assertLess(self.recorded()[0], kept)


if __name__ == "__main__":
    try:
        build.find("minio")
    except unavailable.Unavailable as error:
        unavailable.end(error)
    with world(SPACE) as made, tempfile.TemporaryDirectory() as folder:
        address = made.find("nodes")[0]["status"]["addresses"][0]["address"]
        store = object_store.ObjectStore(folder, address, PORT, made.cluster.published.command,
                                         identity.trusted_by(f"https://{address}:{control_plane.PORT}"))
        store.trust("cluster", made.get("configmaps", "kube-root-ca.crt", SPACE)["data"]["ca.crt"])
        made.apply(KEYS_ARE_PUBLIC)
        with store:
            Stored.world, Stored.store = made, store
            outcome = unittest.main(exit=False, verbosity=2, failfast=True)
    sys.exit(not outcome.result.wasSuccessful())
