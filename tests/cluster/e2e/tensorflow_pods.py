"""TensorFlow's own parameter servers in pods, by the script and the job of examples/foreign, and what they carried.

TensorFlow and its Python weigh 2 GB: they are not in an image. The pods see the folders of this machine in which they
stand, at their own paths and read-only, by a claim; the image has only what leads to the system's part of it.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

from world import ROOT, oci

sys.path[:0] = [str(ROOT / "deploy"), str(ROOT / "tests" / "multiproc")]

import foreign_tensorflow  # noqa: E402
from venv_of import make_venv  # noqa: E402

SCRIPT = ROOT / "examples/foreign/tensorflow_fashion.py"
PROGRAMS = pathlib.Path(os.environ["TRAINYARD_BIN"])
IMAGE = "registry.test/system:1"
NAME = "tensorflow"
STEPS = 100
LIMIT_SECONDS = 900  # against hangs


def python(venv):
    """The Python of the environment `venv`, made where it is not there; None without the package index."""
    return make_venv(venv.absolute(), ROOT / "deploy/wheels_tensorflow.txt")


def image(folder):
    """The archive of an image whose programs and libraries are those mounted at /usr."""
    archive = pathlib.Path(folder) / "system.tar"
    links = [oci.Entry(f"/{name}", link=f"usr/{name}") for name in ("bin", "lib", "lib64")]
    oci.write(archive, IMAGE, [links], {"Env": ["PATH=/bin"]})
    return archive


def folders(interpreter):
    """What the program is made of."""
    base = subprocess.run([interpreter, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True,
                          check=True).stdout.strip()
    found = [pathlib.Path("/usr"), interpreter.parent.parent, SCRIPT.parent, foreign_tensorflow.SOON.parent]
    return found if base.startswith("/usr") else [*found, pathlib.Path(base)]


def job(world, namespace, interpreter, security):
    """examples/foreign/tensorflow_fashion.yaml with its volume, an image, and fewer steps."""
    made = json.loads(subprocess.run([PROGRAMS / "yaml_to_json"], input=SCRIPT.with_suffix(".yaml").read_text(),
                                     capture_output=True, text=True, check=True).stdout)
    claims = {"data": foreign_tensorflow.DATA, "machine": "/"}
    sources = {}
    for name, path in claims.items():
        world.volume(namespace, f"{NAME}-{name}", path, read_only=True)
        sources[name] = {"persistentVolumeClaim": {"claimName": f"{NAME}-{name}", "readOnly": True}}
    made["metadata"]["name"] = NAME
    spec = made["spec"]
    spec["image"] = IMAGE
    # Python wants a folder for what it throws away.
    spec["volumes"] = [{"name": "data", "mountPath": "/data", "volume": sources["data"]},
                       {"name": "scratch", "mountPath": "/tmp", "volume": {"emptyDir": {}}}]
    for role in ("ps", "worker"):
        pod = spec[role]["template"]["spec"]
        pod["securityContext"] = {"runAsUser": 1000, "runAsGroup": 1000}
        pod["volumes"] = [{"name": "machine", **sources["machine"]}]
        container = pod["containers"][0]
        container |= security
        container["volumeMounts"] = [
            {"name": "machine", "mountPath": str(path), "subPath": str(path)[1:], "readOnly": True}
            for path in folders(interpreter)]
        container["command"] = [str(interpreter), "-B", str(foreign_tensorflow.SOON), str(SCRIPT)]
        container["args"].append(f"--steps={STEPS}")
    # Servers end with the last worker: it stays until they have been asked.
    task = spec["worker"]["template"]["spec"]["containers"][0]
    task["command"] = ["sh", "-c", '"$@" && until test -e /tmp/asked; do sleep 1; done', "sh", *task["command"]]
    return made


def steps(world, namespace):
    """Of all workers together, once the script has ended in each."""
    def done(index):
        state = world.status(NAME, namespace).get("state", "")
        assert state != "Failed", world.describe(namespace)
        log = world.cluster.kubectl("logs", f"{NAME}-worker-{index}", "-n", namespace, "-c", "task")
        return re.search(r"done: (\d+) steps", log)

    return sum(int(world.wait(f"TensorFlow's worker {index}", lambda: done(index), LIMIT_SECONDS)[1])
               for index in (0, 1))


def traffic(world, namespace):
    """{server: {"receive" or "transmit": bytes}}, as its agent tells them."""
    counted = {}
    for name, pod in world.pods(NAME, namespace).items():
        server = name.removeprefix(f"{NAME}-")
        if server in foreign_tensorflow.BYTES[1]:
            page = world.cluster.fetch(f"http://{pod['status']['podIP']}:2231/metrics")
            counted[server] = {way: float(value) for way, value in re.findall(
                r"(?m)^trainyard_ps_wire_(receive|transmit)_bytes_total\S* (\S+)$", page)}
    return counted


def end(world, namespace):
    """Lets the workers end; the servers are to follow."""
    for index in (0, 1):
        world.cluster.kubectl("exec", f"{NAME}-worker-{index}", "-n", namespace, "-c", "task", "--", "touch",
                              "/tmp/asked")
    world.wait_state(NAME, namespace, "Succeeded", LIMIT_SECONDS)


def misplaced(counted, steps):
    """{server and way: share} of bytes a step that are more than 5 % from what the placement implies."""
    shares = {f"{server} {way}": counted[server][way] / steps / placed - 1
              for server, placed in foreign_tensorflow.BYTES[1].items() for way in ("receive", "transmit")}
    print(f"bytes per step beside the placement's: {shares}")
    return {name: share for name, share in shares.items() if abs(share) >= 0.05}
