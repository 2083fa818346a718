"""Writes OCI image archives without a container engine, the same bytes for the same input.

An image is a list of layers, a layer a list of entries. Order, owners, times and compression do not
depend on the machine, so that two builds of the same files have the same digest. Archives are what
`ctr images import`, `podman load`, `skopeo copy oci-archive:` and `docker load` (25 and later) read.
"""
import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import stat
import tarfile

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One path of a layer: a file (its bytes from `source` or `text`), a symbolic link, or a folder."""
    path: str  # absolute, in the image
    source: pathlib.Path | None = None
    text: bytes | None = None
    link: str = ""
    mode: int = 0o755
    owner: int = 0

    def is_folder(self):
        return self.source is None and self.text is None and not self.link


def file_entry(path, source):
    """A file as it is on this machine, readable by all, executable where it is so for its owner."""
    source = pathlib.Path(source)
    executable = source.stat().st_mode & stat.S_IXUSR
    return Entry(path, source=source, mode=0o755 if executable else 0o644)


def _with_parents(entries):
    """Entries sorted by path, each once, and the folders above them."""
    by_path = {}
    for entry in entries:
        known = by_path.get(entry.path)
        if known is not None and known != entry:
            raise ValueError(f"{entry.path}: two different entries")
        by_path[entry.path] = entry
    for path in list(by_path):
        for parent in pathlib.PurePosixPath(path).parents:
            if str(parent) != "/":
                by_path.setdefault(str(parent), Entry(str(parent)))
    return [by_path[path] for path in sorted(by_path)]


def layer(entries):
    """The bytes of an uncompressed layer."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in _with_parents(entries):
            member = tarfile.TarInfo(entry.path.lstrip("/"))
            member.mode, member.uid, member.gid, member.mtime = entry.mode, entry.owner, entry.owner, 0
            data = None
            if entry.link:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
            elif entry.is_folder():
                member.type = tarfile.DIRTYPE
            else:
                data = entry.text if entry.text is not None else entry.source.read_bytes()
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data) if data is not None else None)
    return output.getvalue()


def _digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclasses.dataclass
class Written:
    digest: str  # of the manifest: what `image@sha256:...` names
    compressed: int  # bytes to transfer
    unpacked: int  # bytes of the layers' tars


def write(archive_path, name, layers, config, architecture="amd64"):
    """Writes the archive of an image called `name` (registry/repository:tag).

    `layers` are lists of entries, bottom first; `config` is the "config" object of the image
    specification: User, Entrypoint, Env, WorkingDir, Labels.
    """
    blobs, descriptors, plain_digests, unpacked = {}, [], [], 0

    def add(media_type, data, **more):
        digest = _digest(data)
        blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data), **more}

    for entries in layers:
        plain = layer(entries)
        unpacked += len(plain)
        plain_digests.append(_digest(plain))
        descriptors.append(add(LAYER, gzip.compress(plain, compresslevel=4, mtime=0)))
    image = {"architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
             "config": config, "rootfs": {"type": "layers", "diff_ids": plain_digests}}
    manifest = add(MANIFEST, _json({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": add(CONFIG, _json(image)),
        "layers": descriptors}))
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {**manifest, "platform": {"architecture": architecture, "os": "linux"},
         "annotations": {"io.containerd.image.name": name,
                         "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}}]})
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
    files.update({"blobs/" + digest.replace(":", "/"): data for digest, data in blobs.items()})
    archive_path = pathlib.Path(archive_path)
    temporary = archive_path.with_name(archive_path.name + ".new")
    with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(path)
            member.size, member.mode, member.mtime = len(files[path]), 0o644, 0
            archive.addfile(member, io.BytesIO(files[path]))
    temporary.rename(archive_path)
    return Written(manifest["digest"], sum(d["size"] for d in descriptors), unpacked)


def identity(archive_path):
    """(name, digest) of the image in an archive."""
    with tarfile.open(archive_path) as archive:
        manifest = json.load(archive.extractfile("index.json"))["manifests"][0]
    return manifest["annotations"]["io.containerd.image.name"], manifest["digest"]
