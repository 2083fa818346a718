#!/usr/bin/env python3
"""The documents against the tree: links, anchors and paths exist, the index has every page, docs/job.md is the schema of
deploy/crds.yaml, the README's Python is a tested example's, and recipes of images copy what there is."""
import glob
import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_SOURCE = {"build", "runs"}


def documents(root):
    """Paths of all Markdown files, hidden and built folders left out."""
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if parts[0] not in NOT_SOURCE and not any(part.startswith(".") for part in parts):
            yield path


def lines_outside_fences(text):
    """(number, line) of what is not in a fenced block."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def links(path):
    """(line number, target) of the links of a document that stay in the tree."""
    for number, line in lines_outside_fences(path.read_text(encoding="utf-8")):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def anchors(path):
    """What may stand behind the # of a link to a document: its headings, as GitHub names them."""
    headings = [line.lstrip("#").strip() for _, line in lines_outside_fences(path.read_text(encoding="utf-8"))
                if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(root):
    """Relative links whose file does not exist, or has not the heading."""
    for path in documents(root):
        for number, target in links(path):
            file, _, anchor = target.partition("#")
            page = path.parent / file if file else path
            if not page.exists() or anchor and page.suffix == ".md" and anchor not in anchors(page):
                yield f"{path.relative_to(root)}:{number}: the link {target} leads nowhere"


def index_differences(root, page, folder):
    """Where a page does not name every page of a folder once, or names others there. A folder in it is one page."""
    index, folder = root / page, root / folder
    there = {entry for entry in folder.iterdir()
             if entry != index and (entry.suffix == ".md" or entry.is_dir() and any(entry.glob("*.md")))}
    named = {}
    for number, target in links(index):
        path = pathlib.Path(os.path.normpath(index.parent / target.partition("#")[0]))
        if path.parent != folder or path == index:
            continue
        if path not in there:
            yield f"{page}:{number}: there is no page {target}"
        elif path in named:
            yield f"{page}:{number}: {target} is in line {named[path]} already"
        named.setdefault(path, number)
    for path in sorted(there - set(named)):
        yield f"{page}: {path.relative_to(root)} is missing"


def lines_of_its_own(root):
    """Lines of the README's Python that are not in the example which it is taken from. Without any: that it has none."""
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"))
    example = (root / "examples/pytorch/parameter_server.py").read_text(encoding="utf-8").replace(", evaluate)", ")")
    if not blocks:
        yield "README.md: there is no Python"
    for line in "".join(blocks).splitlines():
        if re.sub(r" +#.*", "", line) not in example.splitlines():
            yield f"README.md: the example has no {line}"


def missing_paths(root):
    """Paths in backticks, in a folder of the tree, that do not exist. With a star: that fit nothing."""
    folders = {entry.name for entry in root.iterdir()
               if entry.is_dir() and entry.name not in NOT_SOURCE and not entry.name.startswith(".")}
    for path in documents(root):
        for number, line in lines_outside_fences(path.read_text(encoding="utf-8")):
            for word in re.findall(r"`([^`\s]+)`", line):
                if word.split("/")[0] not in folders or "/" not in word or re.search(r"[<>{}]", word):
                    continue
                found = glob.glob(str(root / word)) if "*" in word else (root / word).exists()
                if not found:
                    yield f"{path.relative_to(root)}:{number}: there is no {word}"


def schema_fields(text):
    """{path below spec: {"default": text or None, "enum": [...]}} of the schema's spec.

    Reads what the file uses of YAML: block mappings, flow mappings on one line, anchors.
    """
    lines = re.sub(r":\n +\{", ": {", text).splitlines()  # a flow mapping below its key
    start = next(n for n, line in enumerate(lines) if re.match(r" +spec:$", line) and n > 40)  # past the definition's own spec
    base = len(lines[start]) - len(lines[start].lstrip())
    stack = []  # (indentation, key)
    fields = {}
    for line in lines[start + 1:]:
        match = re.match(r"( *)(?:- )?([A-Za-z][\w-]*):(?: +(.*))?$", line)
        if line.strip() and len(line) - len(line.lstrip()) <= base:
            break
        if not match:
            continue
        indent, key, rest = len(match.group(1)), match.group(2), match.group(3) or ""
        while stack and stack[-1][0] >= indent:
            stack.pop()
        keys = [name for _, name in stack] + [key]
        stack.append((indent, key))
        path = ".".join(names_of(keys))
        if ".template." in path:
            continue  # Kubernetes has pages of its own for the fields of a pod
        if len(keys) >= 2 and keys[-2] == "properties":
            fields[path] = {"default": inline(rest, "default"), "enum": enum_of(inline(rest, "enum"))}
        elif key in ("default", "enum") and path in fields:
            fields[path][key] = rest if key == "default" else enum_of(rest)
    return fields


def names_of(keys):
    """The fields among keys: what stands right below `properties`."""
    return [key for before, key in zip(keys, keys[1:]) if before == "properties"] if keys else []


def inline(flow, key):
    """Value of a key of a flow mapping on one line; None without."""
    match = re.search(r"[{,] *" + key + r": *(\[[^\]]*\]|[^,}]+)", flow)
    return match.group(1).strip() if match else None


def enum_of(text):
    return [value.strip().strip('"') for value in text.strip("[] ").split(",")] if text else []


def table_rows(text):
    """{first cell in backticks, [] left out: (line number, whole row)} of all tables."""
    rows = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\| `([\w.\[\]]+)` \|", line)
        if match:
            rows[match.group(1).replace("[]", "")] = (number, line)
    return rows


def job_differences(schema, page):
    """Where docs/job.md does not say what the schema says: fields, defaults, values."""
    fields, rows = schema_fields(schema), table_rows(page)
    for path, field in fields.items():
        if path not in rows:
            yield f"docs/job.md: {path} is missing"
            continue
        number, row = rows[path]
        cells = row.split(" | ")
        if field["default"] is not None and f"`{field['default']}`" not in cells[2]:
            yield f"docs/job.md:{number}: the default of {path} is {field['default']}"
        for value in field["enum"]:
            if f"`{value}`" not in row:
                yield f"docs/job.md:{number}: {path} may be {value}"
    for path, (number, _) in rows.items():
        if path not in fields:
            yield f"docs/job.md:{number}: the schema has no {path}"


def copied(recipe):
    """(folder, pattern) of what a Dockerfile copies: from its own folder, "", or from one that is given by name."""
    for line in recipe.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[:1] == ["COPY"]:
            named = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            for source in [word for word in words[1:-1] if not word.startswith("--")]:
                yield named[0] if named else "", source


def missing_copies(root):
    """What recipes below examples/ copy from their folders that is not there, and what their scripts import of it that
    they do not copy."""
    for recipe in sorted(root.glob("examples/*/Dockerfile")):
        own = {source for folder, source in copied(recipe) if not folder}
        where = recipe.relative_to(root)
        for source in sorted(own):
            if not (recipe.parent / source).exists():
                yield f"{where}: there is no {source}"
                continue
            script = (recipe.parent / source).read_text(encoding="utf-8")
            for module in re.findall(r"(?m)^(?:import|from) (\w+)", script):
                if (recipe.parent / f"{module}.py").exists() and f"{module}.py" not in own:
                    yield f"{where}: {source} needs {module}.py"


# What draws pictures that are not their folder's only ones.
DRAWN_BY = {"splits": "scaling/splits_picture.py", "learning": "experiment/learning.py", "fleet": "operator/fleet_picture.py"}


def drawn(root):
    """(picture, what its program makes of the values beside it; the same of the table) for each that is drawn from values."""
    page = (root / "docs/experiments.md").read_text(encoding="utf-8")
    for values in sorted((root / "docs/images").glob("*.json")):
        program = root / "bench" / DRAWN_BY.get(values.stem, f"{values.stem}/picture.py")
        sys.path.insert(0, str(program.parent))
        spec = importlib.util.spec_from_file_location(f"picture_of_{values.stem}", program)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        results = json.loads(values.read_text(encoding="utf-8"))
        yield values.stem, values.with_suffix(".svg").read_text(encoding="utf-8"), module.svg(results), module.table(results) in page


class Documents(unittest.TestCase):
    def test_pictures_and_tables_are_of_the_values_beside_them(self):
        found = list(drawn(ROOT))
        self.assertGreaterEqual(len(found), 2)
        for name, picture, expected, tabled in found:
            with self.subTest(name):
                self.assertTrue(picture == expected, f"docs/images/{name}.svg is not what its program draws")
                self.assertTrue(tabled, f"docs/experiments.md has not the table of {name}")

    def test_links_lead_somewhere(self):
        self.assertEqual([], list(broken_links(ROOT)))

    def test_the_index_has_every_page_once(self):
        self.assertEqual([], list(index_differences(ROOT, "docs/README.md", "docs")))
        self.assertEqual([], list(index_differences(ROOT, "docs/monitoring.md", "docs/runbooks")))

    def test_the_readmes_python_is_an_examples(self):
        self.assertEqual([], list(lines_of_its_own(ROOT)))

    def test_paths_exist(self):
        self.assertEqual([], list(missing_paths(ROOT)))

    def test_recipes_copy_what_there_is(self):
        self.assertEqual([], list(missing_copies(ROOT)))
        recipe = ROOT / "examples/pytorch/Dockerfile"
        project = re.search(r'(?m)^name = "(.*)"', (ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))[1]
        self.assertIn(("wheel", f"{project.replace('-', '_')}-*.whl"), list(copied(recipe)))

    def test_the_page_of_the_job_is_the_schema(self):
        schema = (ROOT / "deploy/crds.yaml").read_text(encoding="utf-8")
        page = (ROOT / "docs/job.md").read_text(encoding="utf-8")
        self.assertGreater(len(schema_fields(schema)), 80)
        self.assertEqual([], list(job_differences(schema, page)))


class SelfTest(unittest.TestCase):
    """What the checks must find."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "docs").mkdir()

    def write(self, text):
        (self.root / "docs/page.md").write_text(text, encoding="utf-8")

    def test_links(self):
        self.write("# x\n[a](page.md) [b](../docs/page.md#x) [c](https://example.org/y) `[d](no.md)`\n[e](gone.md)\n")
        self.assertEqual(["docs/page.md:3: the link gone.md leads nowhere"], list(broken_links(self.root)))

    def test_anchors(self):
        self.write("# A `page`, 2nd\n[a](#a-page-2nd) [b](page.md#a-page-2nd) [c](#gone)\n```\n# no heading\n```\n[d](page.md#no-heading)\n")
        self.assertEqual(["docs/page.md:2: the link #gone leads nowhere",
                          "docs/page.md:6: the link page.md#no-heading leads nowhere"], list(broken_links(self.root)))

    def test_index(self):
        self.write("")
        (self.root / "docs/other.md").write_text("", encoding="utf-8")
        (self.root / "docs/images").mkdir()
        (self.root / "docs/more").mkdir()
        (self.root / "docs/more/one.md").write_text("", encoding="utf-8")
        index = self.root / "docs/README.md"
        cases = [("[a](page.md) [b](other.md#x) [c](more) [d](../docs/README.md) [e](../x.md) [f](more/one.md)", []),
                 ("[a](page.md) [b](more)\n[c](page.md#x) [d](gone.md)",
                  ["docs/README.md:2: page.md#x is in line 1 already", "docs/README.md:2: there is no page gone.md",
                   "docs/README.md: docs/other.md is missing"]),
                 ("[a](page.md) [b](other.md)", ["docs/README.md: docs/more is missing"])]
        for text, expected in cases:
            with self.subTest(text):
                index.write_text(text, encoding="utf-8")
                self.assertEqual(expected, list(index_differences(self.root, "docs/README.md", "docs")))

    def test_python_of_the_readme(self):
        (self.root / "examples/pytorch").mkdir(parents=True)
        (self.root / "examples/pytorch/parameter_server.py").write_text("for x in steps(a, evaluate):\n    y()\n", encoding="utf-8")
        for text, expected in [("```python\nfor x in steps(a):\n    y()  # why\n```\n", []),
                               ("```python\ny()\n```\n", ["README.md: the example has no y()"]),
                               ("", ["README.md: there is no Python"])]:
            with self.subTest(text):
                (self.root / "README.md").write_text(text, encoding="utf-8")
                self.assertEqual(expected, list(lines_of_its_own(self.root)))

    def test_paths(self):
        self.write("`docs/page.md` `docs/*.md` `runs/x` `docs/<name>`\n```\n`docs/no.md`\n```\n"
                   "`docs/gone.md` `docs/*.txt`\n")
        self.assertEqual(["docs/page.md:5: there is no docs/gone.md", "docs/page.md:5: there is no docs/*.txt"],
                         list(missing_paths(self.root)))

    def test_recipes(self):
        folder = self.root / "examples/x"
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("import os\nimport b\nfrom c import d\n", encoding="utf-8")
        (folder / "b.py").write_text("", encoding="utf-8")
        (folder / "c.py").write_text("", encoding="utf-8")
        recipe = folder / "Dockerfile"
        recipe.write_text("FROM y\nCOPY --from=z w-*.whl /tmp/\nCOPY a.py b.py gone.py ./\n", encoding="utf-8")
        self.assertEqual(["examples/x/Dockerfile: a.py needs c.py", "examples/x/Dockerfile: there is no gone.py"],
                         list(missing_copies(self.root)))
        self.assertEqual(("z", "w-*.whl"), next(copied(recipe)))

    SCHEMA = "\n" * 41 + """  spec:
    properties:
      mode:
        type: string
        enum: [A, B]
        default: A
      rules:
        items:
          properties:
            ps:
              {type: integer, minimum: 0, default: 4}
  status:
    properties:
      state: {type: string}
"""
    PAGE = "| `mode` | `A`, `B` | `A` | x |\n| `rules` | list | none | x |\n| `rules[].ps` | 0.. | `4` | x |\n"

    def test_schema_is_read(self):
        self.assertEqual({"mode": {"default": "A", "enum": ["A", "B"]},
                          "rules": {"default": None, "enum": []},
                          "rules.ps": {"default": "4", "enum": []}}, schema_fields(self.SCHEMA))
        self.assertEqual([], list(job_differences(self.SCHEMA, self.PAGE)))

    def test_fields_that_differ(self):
        cases = [(("| `rules` |", "| rules |"), "docs/job.md: rules is missing"),
                 (("`4`", "`5`"), "docs/job.md:3: the default of rules.ps is 4"),
                 (("`A`, `B`", "`A`"), "docs/job.md:1: mode may be B"),
                 (("`mode`", "`made`"), "docs/job.md: mode is missing")]
        for (old, new), message in cases:
            with self.subTest(message):
                self.assertIn(message, list(job_differences(self.SCHEMA, self.PAGE.replace(old, new))))
        self.assertIn("docs/job.md:4: the schema has no old",
                      list(job_differences(self.SCHEMA, self.PAGE + "| `old` | x | x | x |\n")))


if __name__ == "__main__":
    unittest.main()
