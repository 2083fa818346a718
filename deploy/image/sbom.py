"""What is in an image, as SPDX 2.3 in JSON: the same bytes for the same image and date.

https://spdx.github.io/spdx-spec/v2.3/
"""
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import urllib.parse

NAMESPACE = "https://trainyard.dev/spdx"
OURS = "trainyard"


@dataclasses.dataclass(frozen=True)
class File:
    path: str  # absolute, in the image
    data: bytes
    package: object  # debian.Package, OURS, or None: nobody knows


def files(entries, owners):
    """[File] of all regular files among `entries` (oci.Entry), by path. `owners`: {path in the image:
    package}."""
    found = {}
    for entry in entries:
        if not entry.is_folder() and not entry.link:
            data = entry.text if entry.text is not None else entry.source.read_bytes()
            found[entry.path] = File(entry.path, data, owners.get(entry.path))
    return [found[path] for path in sorted(found)]


def system():
    """(ID, version, name) of this machine's distribution, whose packages are in the image."""
    fields = {}
    release = pathlib.Path("/etc/os-release")
    if release.exists():
        for line in release.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            fields[name] = value.strip('"')
    return fields.get("ID", "unknown"), fields.get("VERSION_ID", ""), fields.get("NAME", "unknown")


def document(image, version, digest, contents, seconds):
    """The text of the document on the image `image` with the manifest's `digest` and `contents` ([File]),
    made at `seconds` since 1970."""
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    relations = [_relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")]
    packages = [{
        "SPDXID": "SPDXRef-Image", "name": image, "versionInfo": version, "primaryPackagePurpose": "CONTAINER",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "externalRefs": [_purl(f"pkg:oci/{image}@{urllib.parse.quote(digest, safe='')}?arch=amd64")]}]
    numbered = [(f"SPDXRef-File-{at}", file) for at, file in enumerate(contents)]
    groups = {}
    for identifier, file in numbered:
        groups.setdefault(file.package, []).append((identifier, file))
    for package in sorted(groups, key=_order):
        holder = "SPDXRef-Image"
        if package is not None:
            described = _package(package, version, [file for _, file in groups[package]])
            packages.append(described)
            relations.append(_relation(holder, "CONTAINS", described["SPDXID"]))
            holder = described["SPDXID"]
        relations += [_relation(holder, "CONTAINS", identifier) for identifier, _ in groups[package]]
    return json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image}-{version}", "documentNamespace": f"{NAMESPACE}/{image}-{version}-{digest.rsplit(':', 1)[-1]}",
        "creationInfo": {"created": created, "creators": [f"Tool: trainyard-images-{version}"]},
        "packages": packages, "files": [_file(identifier, file) for identifier, file in numbered],
        "relationships": relations}, indent=1) + "\n"


def _order(package):
    return ("" if package is None else "0" if package == OURS else f"1{package.name}")


def _relation(one, kind, other):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _purl(locator):
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}


def _sha1(data):
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()  # SPDX 2 asks for it


def _file(identifier, file):
    return {"SPDXID": identifier, "fileName": "." + file.path,
            "checksums": [{"algorithm": "SHA1", "checksumValue": _sha1(file.data)},
                          {"algorithm": "SHA256", "checksumValue": hashlib.sha256(file.data).hexdigest()}],
            "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}


def _package(package, version, contents):
    """The files of a package that are in the image count as the package."""
    code = _sha1("".join(sorted(_sha1(file.data) for file in contents)).encode())
    common = {"downloadLocation": "NOASSERTION", "filesAnalyzed": True,
              "packageVerificationCode": {"packageVerificationCodeValue": code},
              "licenseConcluded": "NOASSERTION", "licenseInfoFromFiles": ["NOASSERTION"],
              "copyrightText": "NOASSERTION"}
    if package == OURS:
        return {"SPDXID": "SPDXRef-Package-trainyard", "name": OURS, "versionInfo": version,
                "licenseDeclared": "Apache-2.0", "supplier": "Organization: The Trainyard authors",
                **common, "externalRefs": [_purl(f"pkg:generic/{OURS}@{version}")]}
    identifier, release, name = system()
    distro = f"&distro={identifier}-{release}" if release else ""
    quoted = urllib.parse.quote(package.version, safe="")
    return {"SPDXID": "SPDXRef-Package-Debian-" + re.sub(r"[^A-Za-z0-9.-]", lambda m: f"-{ord(m[0]):x}", package.name),
            "name": package.name, "versionInfo": package.version, "supplier": f"Organization: {name}",
            "sourceInfo": f"built from the source package {package.source} {package.source_version}",
            "licenseDeclared": package.license() or "NOASSERTION", **common,
            "externalRefs": [_purl(f"pkg:deb/{identifier}/{urllib.parse.quote(package.name)}@{quoted}"
                                   f"?arch={package.architecture}{distro}")]}
