"""The scripts of examples/pytorch in pods: their image, and ddp.yaml and parameter_server.yaml as jobs of a cluster.

The image is what examples/pytorch/Dockerfile makes, but for Python and torch, which weigh 1 GB: the pods see the
system's by a claim, read-only and at their own paths.
"""
import json
import os
import pathlib
import subprocess

import example_runs
from world import oci

IMAGE = "registry.test/pytorch:1"
SITE, SCRIPTS, CHECKPOINTS = "/opt/site", "/train", "/checkpoints"
# Where Debian's torch and Python lie; which BLAS it is the alternatives say.
FOLDERS = ("/usr", "/etc/alternatives")
FS_GROUP = 65532
# What a step of a job takes at least whose steps the job makes: so it is not over before the pods have come and gone
# that a test is about.
STEP_MS = 20
SECURITY = {"securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]}}}


def image(folder):
    """The archive of an image with the package as the wheel has it, and the scripts."""
    archive = pathlib.Path(folder) / "pytorch.tar"
    python = example_runs.SOURCE / "python"
    package = [oci.file_entry(f"{SITE}/{path.relative_to(python)}", path)
               for path in sorted(python.glob("trainyard/**/*.py"))]
    package.append(oci.file_entry(f"{SITE}/trainyard/libtrainyard.so", example_runs.library()))
    scripts = [oci.file_entry(f"{SCRIPTS}/{path.name}", path) for path in sorted(example_runs.EXAMPLES.glob("*.py"))]
    links = [oci.Entry(f"/{name}", link=f"usr/{name}") for name in ("bin", "lib", "lib64")]
    oci.write(archive, IMAGE, [links, package, scripts],
              {"Env": ["PATH=/bin", f"PYTHONPATH={SITE}", "PYTHONDONTWRITEBYTECODE=1",
                       f"TRAINYARD_FAILPOINTS=worker.compute=delay({STEP_MS})"], "WorkingDir": SCRIPTS,
               "User": "1000:1000"})
    return archive


def claims(world, namespace):
    """What all jobs of the namespace read."""
    world.volume(namespace, "machine", "/", read_only=True)
    world.volume(namespace, "data", example_runs.DATA, read_only=True)


def job(world, namespace, name, script, steps, folder):
    """The job of examples/pytorch/ddp.yaml with an image, the data, and checkpoints in a folder of this machine, which
    is new and which all of its pods share."""
    shared(world, namespace, name, folder)
    made = example("ddp", name)
    spec = made["spec"]
    spec["volumes"] = [*volumes(), {"name": "checkpoints", "mountPath": CHECKPOINTS, "volume": claim(name, False)}]
    container = in_pods(spec)
    assert container["command"] == ["python3", "ddp.py"], container
    container["command"] = ["python3", script]
    container["env"] += [{"name": "STEPS", "value": str(steps)},
                         {"name": "CHECKPOINT", "value": f"{CHECKPOINTS}/fashion.pt"}]
    return made


def program_job(world, namespace, name, steps, folder):
    """The job of examples/pytorch/parameter_server.yaml, deterministic, with its folder on this machine."""
    shared(world, namespace, name, folder)
    made = example("parameter_server", name)
    spec = made["spec"]
    spec["volumes"] = volumes()
    spec["storage"] = {"volume": claim(name, False)}
    spec["training"] |= {"steps": steps, "deterministic": True, "checkpoint": {"everySeconds": 2}}
    in_pods(spec)
    return made


def shared(world, namespace, name, folder):
    folder.mkdir()
    # The pods' users are others: the workers' is that of their image. As the kubelet makes a volume for an fsGroup.
    os.chown(folder, -1, FS_GROUP)
    folder.chmod(0o2777)
    world.volume(namespace, name, folder)


def example(file, name):
    text = (example_runs.EXAMPLES / f"{file}.yaml").read_text(encoding="utf-8")
    made = json.loads(subprocess.run([example_runs.BIN / "yaml_to_json"], capture_output=True, text=True, check=True,
                                     input=text).stdout)
    made["metadata"]["name"] = name
    return made


def volumes():
    # Python wants a folder for what it throws away.
    return [{"name": "data", "mountPath": "/data", "volume": claim("data", True)},
            {"name": "scratch", "mountPath": "/tmp", "volume": {"emptyDir": {}}}]


def in_pods(spec):
    """Gives the workers the image and what it lacks; returns their container."""
    pod = spec["worker"]["template"]["spec"]
    pod["volumes"] = [{"name": "machine", **claim("machine", True)}]
    container = pod["containers"][0]
    container |= {**SECURITY, "image": IMAGE}
    # By which it takes its kernels: the scripts on this machine have it, and others give other bits.
    container.setdefault("env", []).extend({"name": name, "value": value} for name, value in os.environ.items()
                                           if name.startswith("OPENBLAS_"))
    container["volumeMounts"] = [{"name": "machine", "mountPath": path, "subPath": path[1:], "readOnly": True}
                                 for path in FOLDERS]
    return container


def claim(name, read_only):
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}
