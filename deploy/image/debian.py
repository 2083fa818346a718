"""Which Debian package a file of this machine comes from, and what that package says of itself."""
import dataclasses
import pathlib
import re
import subprocess

DOC = pathlib.Path("/usr/share/doc")
# Short names of Debian's machine-readable copyright files whose meaning is the same as that of an SPDX
# identifier. `MIT` and `public-domain` are not among them: they stand for different texts.
SPDX = {
    "apache-2.0": "Apache-2.0", "expat": "MIT", "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause",
    "bsl-1.0": "BSL-1.0", "cc0-1.0": "CC0-1.0", "isc": "ISC", "mpl-1.1": "MPL-1.1", "mpl-2.0": "MPL-2.0",
    "zlib": "Zlib",
    **{f"{family.lower()}-{version}{plus}": f"{family}-{version if '.' in version else version + '.0'}-{suffix}"
       for family, versions in (("GPL", ("1", "2", "2.0", "3", "3.0")), ("LGPL", ("2", "2.0", "2.1", "3", "3.0")))
       for version in versions for plus, suffix in (("", "only"), ("+", "or-later"))},
}
FORMAT = re.compile(r"https?://www\.debian\.org/doc/packaging-manuals/copyright-format/1\.0/?")


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    version: str
    architecture: str
    source: str
    source_version: str

    def copyright(self):
        """Its copyright file, or None."""
        path = (DOC / self.name / "copyright").resolve()
        return path if path.is_file() else None

    def license(self):
        """As an SPDX expression; None where its copyright file does not say it unmistakably."""
        path = self.copyright()
        return declared(path.read_text(encoding="utf-8", errors="replace")) if path else None


def owners(paths):
    """{path: Package} of those `paths` that a package has brought; without dpkg there are none."""
    # Packages may know a file by its name without /usr, of which they are then a link.
    names = {}
    for path in map(str, paths):
        names[path] = path
        if path.startswith("/usr/"):
            names[path.removeprefix("/usr")] = path
    found = {}
    for line in _query("--search", *names).splitlines():
        packages, _, name = line.partition(": ")
        if name in names and not packages.startswith("diversion "):
            # Several packages of one name and version, of different architectures, may share a file.
            found[names[name]] = sorted(packages.split(", "))[0]
    about = _packages(set(found.values()))
    return {pathlib.Path(path): about[package] for path, package in found.items()}


def _packages(names):
    fields = ("binary:Package", "Package", "Version", "Architecture", "source:Package", "source:Version")
    shown = "\\t".join(f"${{{field}}}" for field in fields) + "\\n"
    text = _query("--show", f"--showformat={shown}", *sorted(names)) if names else ""
    packages = {}
    for line in text.splitlines():
        qualified, *rest = line.split("\t")
        # Also by its bare name: --search qualifies a name only where that is needed.
        packages[qualified] = packages[rest[0]] = Package(*rest)
    return packages


def _query(*arguments):
    try:
        # Its exit code says that some path is of no package.
        return subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}).stdout
    except FileNotFoundError:
        return ""


def declared(text):
    """The licences of a machine-readable copyright file as one SPDX expression, None when it is not one
    or names a licence that has no certain counterpart. What only concerns the packaging is left out."""
    first, *rest = [_fields(part) for part in re.split(r"\n[ \t]*\n", text.strip())]
    if not FORMAT.fullmatch(first.get("format", "").strip()):
        return None
    found = set()
    for paragraph in rest:
        files = paragraph.get("files", "").split()
        if files and not all(one.startswith("debian/") for one in files):
            found.add(_expression(paragraph.get("license", "").splitlines() or [""]))
    if not found or None in found:
        return None
    several = len(found) > 1
    return " AND ".join(f"({one})" if several and " OR " in one else one for one in sorted(found))


def _fields(paragraph):
    fields, name = {}, ""
    for line in paragraph.splitlines():
        if line[:1] in (" ", "\t"):
            fields[name] = fields.get(name, "") + "\n" + line.strip()
        elif ":" in line:
            name, value = line.split(":", 1)
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields


def _expression(lines):
    """Of a license field's first line: one name, or several with only `and` or only `or` between them."""
    words = lines[0].lower().split()
    names, between = words[::2], set(words[1::2])
    if not names or len(words) % 2 == 0 or between - {"and", "or"} or len(between) > 1:
        return None
    known = [SPDX.get(name) for name in names]
    if None in known:
        return None
    return f" {between.pop().upper()} ".join(sorted(set(known))) if between else known[0]
