"""The scripts of examples/pytorch in pods: their image, and examples/pytorch/ddp.yaml as a job of a cluster.

The image is what examples/pytorch/Dockerfile makes, but for Python and torch, which weigh 1 GB: the pods see the
system's by a claim, read-only and at their own paths.
"""
import json
import pathlib
import subprocess

import example_runs
from world import oci

IMAGE = "registry.test/pytorch:1"
SITE, SCRIPTS, CHECKPOINTS = "/opt/site", "/train", "/checkpoints"
# Where Debian's torch and Python lie; which BLAS it is the alternatives say.
FOLDERS = ("/usr", "/etc/alternatives")
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
              {"Env": ["PATH=/bin", f"PYTHONPATH={SITE}", "PYTHONDONTWRITEBYTECODE=1"], "WorkingDir": SCRIPTS,
               "User": "1000:1000"})
    return archive


def claims(world, namespace):
    """What all jobs of the namespace read."""
    world.volume(namespace, "machine", "/", read_only=True)
    world.volume(namespace, "data", example_runs.DATA, read_only=True)


def job(world, namespace, name, script, steps, folder):
    """The job of examples/pytorch with an image, the data, and checkpoints in a folder of this machine, which is
    new and which all of its pods share."""
    folder.mkdir()
    folder.chmod(0o777)  # the pods' user is another one
    world.volume(namespace, name, folder)
    made = json.loads(subprocess.run([example_runs.BIN / "yaml_to_json"], capture_output=True, text=True, check=True,
                                     input=(example_runs.EXAMPLES / "ddp.yaml").read_text(encoding="utf-8")).stdout)
    made["metadata"]["name"] = name
    spec = made["spec"]
    # Python wants a folder for what it throws away.
    spec["volumes"] = [{"name": "data", "mountPath": "/data", "volume": claim("data", True)},
                       {"name": "checkpoints", "mountPath": CHECKPOINTS, "volume": claim(name, False)},
                       {"name": "scratch", "mountPath": "/tmp", "volume": {"emptyDir": {}}}]
    pod = spec["worker"]["template"]["spec"]
    pod["volumes"] = [{"name": "machine", **claim("machine", True)}]
    container = pod["containers"][0]
    assert container["command"] == ["python3", "ddp.py"], container
    container |= {**SECURITY, "image": IMAGE, "command": ["python3", script]}
    container["env"] += [{"name": "STEPS", "value": str(steps)},
                         {"name": "CHECKPOINT", "value": f"{CHECKPOINTS}/fashion.pt"}]
    container["volumeMounts"] = [{"name": "machine", "mountPath": path, "subPath": path[1:], "readOnly": True}
                                 for path in FOLDERS]
    return made


def claim(name, read_only):
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}
