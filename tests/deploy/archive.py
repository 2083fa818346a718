"""What a container engine reads from an archive."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "image"))


class Archive:
    """An image; every digest is checked on the way."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            self.files = {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
        self.index = json.loads(self.files["index.json"])
        self.manifest = json.loads(self.blob(self.index["manifests"][0]))
        self.image = json.loads(self.blob(self.manifest["config"]))
        self.entries = {}
        for descriptor, plain_digest in zip(self.manifest["layers"], self.image["rootfs"]["diff_ids"], strict=True):
            plain = gzip.decompress(self.blob(descriptor))
            assert plain_digest == "sha256:" + hashlib.sha256(plain).hexdigest()
            with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
                for member in layer.getmembers():
                    data = layer.extractfile(member).read() if member.isfile() else None
                    self.entries[member.name] = (member, data)

    def blobs(self):
        return {name for name in self.files if name.startswith("blobs/")}

    def blob(self, descriptor):
        data = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert descriptor["size"] == len(data)
        assert descriptor["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
        return data

    def unpack(self, folder):
        """Writes the image's files below `folder`, as its root file system."""
        for name, (member, data) in self.entries.items():
            path = folder / name
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.issym():
                path.symlink_to(member.linkname)
            else:
                path.write_bytes(data)
                os.chmod(path, member.mode)
