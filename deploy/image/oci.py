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
# Of gzip, which every engine and registry reads; zstd, which Docker reads since 23, saves a quarter. 9 takes
# twice as long as 6 for half a per cent.
LEVEL = 6


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


def _sorted(entries, folders):
    """Entries sorted by path, each once, and with `folders` the folders above them."""
    by_path = {}
    for entry in entries:
        known = by_path.get(entry.path)
        if known is not None and known != entry:
            raise ValueError(f"{entry.path}: two different entries")
        by_path[entry.path] = entry
    for path in list(by_path) if folders else ():
        for parent in pathlib.PurePosixPath(path).parents:
            if str(parent) != "/":
                by_path.setdefault(str(parent), Entry(str(parent)))
    return [by_path[path] for path in sorted(by_path)]


def layer(entries, folders=True):
    """The bytes of an uncompressed layer, or of any tar; with the folders above what it holds."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry in _sorted(entries, folders):
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


class _Layout:
    """The blobs of an archive, and its index."""

    def __init__(self):
        self.blobs = {}

    def add(self, media_type, data, **more):
        digest = _digest(data)
        self.blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data), **more}

    def write(self, archive_path, tag, manifest, annotations, **about):
        """Writes the archive with the one `manifest`; returns its digest."""
        described = self.add(MANIFEST, _json({"schemaVersion": 2, "mediaType": MANIFEST, **manifest}))
        index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {**described, **about, "annotations": {**annotations, "org.opencontainers.image.ref.name": tag}}]})
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
        files.update({"blobs/" + digest.replace(":", "/"): data for digest, data in self.blobs.items()})
        archive_path = pathlib.Path(archive_path)
        temporary = archive_path.with_name(archive_path.name + ".new")
        with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(files):
                member = tarfile.TarInfo(path)
                member.size, member.mode, member.mtime = len(files[path]), 0o644, 0
                archive.addfile(member, io.BytesIO(files[path]))
        temporary.rename(archive_path)
        return described["digest"]


def write(archive_path, name, layers, config, architecture="amd64"):
    """Writes the archive of an image called `name` (registry/repository:tag).

    `layers` are lists of entries, bottom first; `config` is the "config" object of the image
    specification: User, Entrypoint, Env, WorkingDir, Labels.
    """
    layout, descriptors, plain_digests, unpacked = _Layout(), [], [], 0
    for entries in layers:
        plain = layer(entries)
        unpacked += len(plain)
        plain_digests.append(_digest(plain))
        descriptors.append(layout.add(LAYER, gzip.compress(plain, compresslevel=LEVEL, mtime=0)))
    image = {"architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
             "config": config, "rootfs": {"type": "layers", "diff_ids": plain_digests}}
    manifest = {"config": layout.add(CONFIG, _json(image)), "layers": descriptors}
    digest = layout.write(archive_path, name.rsplit(":", 1)[1], manifest, {"io.containerd.image.name": name},
                          platform={"architecture": architecture, "os": "linux"})
    return Written(digest, sum(d["size"] for d in descriptors), unpacked)


def write_artifact(archive_path, tag, config, content, annotations):
    """Writes the archive of what is no image: `config` and `content` are each (media type, bytes). Returns
    the manifest's digest."""
    layout = _Layout()
    manifest = {"config": layout.add(*config), "layers": [layout.add(*content)], "annotations": annotations}
    return layout.write(archive_path, tag, manifest, {})


def identity(archive_path):
    """(name, digest) of the image in an archive."""
    with tarfile.open(archive_path) as archive:
        manifest = json.load(archive.extractfile("index.json"))["manifests"][0]
    return manifest["annotations"]["io.containerd.image.name"], manifest["digest"]
