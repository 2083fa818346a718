"""The Helm chart as a file and as an OCI artefact, the same bytes for the same chart: no helm is needed, and
`helm pull`, `install` and `template` read it."""
import fnmatch
import gzip
import json
import pathlib
import re

import oci

CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
# What of Chart.yaml stands on a line of its own; helm reads the rest from the chart itself.
FIELDS = ("apiVersion", "name", "version", "appVersion", "description", "type", "kubeVersion")


def about(folder):
    """{field: text} of FIELDS."""
    text = (pathlib.Path(folder) / "Chart.yaml").read_text(encoding="utf-8")
    found = {}
    for name in FIELDS:
        match = re.search(rf"^{name}: *(\"?)([^\"\n]+)\1$", text, re.M)
        if not match:
            raise ValueError(f"{folder}/Chart.yaml: no line `{name}: ...`")
        found[name] = match[2].strip()
    return found


def pack(folder):
    """The bytes of the chart's .tgz."""
    folder = pathlib.Path(folder)
    ignored = [line.rstrip("/") for line in (folder / ".helmignore").read_text(encoding="utf-8").split()]
    entries = []
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if path.is_file() and not any(fnmatch.fnmatch(part, rule) for part in inside.parts for rule in ignored):
            entries.append(oci.Entry(f"/{folder.name}/{inside}", source=path, mode=0o644))
    return gzip.compress(oci.layer(entries, folders=False), compresslevel=oci.LEVEL, mtime=0)


def write(folder, out, version):
    """Writes NAME-VERSION.tgz and its archive into `out`; returns (name, archive, digest). Raises ValueError
    when the chart is not that of `version`."""
    fields = about(folder)
    if {fields["version"], fields["appVersion"]} != {version}:
        raise ValueError(f"{folder}/Chart.yaml: version {fields['version']}, appVersion {fields['appVersion']}: "
                         f"expected {version}")
    content = pack(folder)
    place = pathlib.Path(out) / f"{fields['name']}-{version}"
    place.with_name(place.name + ".tgz").write_bytes(content)
    archive = place.with_name(place.name + ".tar")
    annotations = {f"org.opencontainers.image.{name}": value for name, value in (
        ("title", fields["name"]), ("version", version), ("description", fields["description"]))}
    digest = oci.write_artifact(archive, version, (CONFIG, json.dumps(fields, sort_keys=True).encode()),
                                (CONTENT, content), annotations)
    return fields["name"], archive, digest
