"""The rules of tidy. A rule takes the tree and yields (path, line, message)."""
import fnmatch
import pathlib
import re

from layers import COMPOSITION, EXTERNAL, EXTRA_HEADERS, FACADES, LAYERS

SOURCE_FOLDERS = ("agent", "base", "bench", "cli", "operator", "proto", "runtime", "tests")
CODE_SUFFIXES = {".cc", ".h"}
LENGTH_SUFFIXES = {".cc", ".h", ".proto", ".py", ".sh", ".cmake"}
TEXT_SUFFIXES = LENGTH_SUFFIXES | {".md", ".txt", ".yaml", ".yml", ".json", ".html"}
MAX_LINES = 500
SKIPPED_FOLDERS = {"build", "runs", "__pycache__", "node_modules"}


class Tree:
    """The files of a checkout, read once. `files` maps a path from the root to its text."""

    def __init__(self, files):
        self.files = files
        self.code = {path: strip_code(text) for path, text in files.items()
                     if suffix(path) in CODE_SUFFIXES}

    @staticmethod
    def read(root):
        files = {}
        for path in sorted(pathlib.Path(root).rglob("*")):
            relative = path.relative_to(root)
            hidden = any(part.startswith(".") or part in SKIPPED_FOLDERS for part in relative.parts)
            if hidden or not path.is_file() or path.is_symlink():
                continue
            if path.suffix in TEXT_SUFFIXES or path.name in ("CMakeLists.txt", "Makefile"):
                files[relative.as_posix()] = path.read_text(encoding="utf-8")
        return Tree(files)


def suffix(path):
    return pathlib.PurePosixPath(path).suffix


def strip_code(text):
    """C++ with comments and the insides of literals blanked; line numbers stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)

    def blank(match):
        token = match.group(0)
        if token.startswith("'") and match.start() and text[match.start() - 1].isalnum():
            return token  # 1'000'000
        line_start = text.rfind("\n", 0, match.start()) + 1
        if re.match(r"\s*#\s*include", text[line_start:match.start()]):
            return token if not token.startswith("/") else ""
        quote = token[0] if token[0] in "\"'" else ""
        return quote + "\n" * token.count("\n") + quote

    return pattern.sub(blank, text)


def includes(code):
    """(line, header, is_quoted) of each include."""
    for number, line in enumerate(code.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(2), match.group(1) == '"'


def layer_of(path):
    """The longest folder of the table that holds `path`; None where there is none."""
    folder = str(pathlib.PurePosixPath(path).parent)
    while folder != ".":
        if folder in LAYERS:
            return folder
        folder = str(pathlib.PurePosixPath(folder).parent)
    return None


def may_include(layer, header):
    target = layer_of(header)
    if target == layer or header in EXTRA_HEADERS.get(layer, []):
        return True
    return any(target == allowed or (allowed.endswith("/*") and (target or "").startswith(allowed[:-1]))
               for allowed in LAYERS[layer])


def rule_layers(tree):
    """Includes go down the table only."""
    for path, code in tree.code.items():
        if path.startswith("tests/") or path.startswith("bench/"):
            continue
        if any(re.search(pattern, path) for pattern in COMPOSITION):
            continue
        layer = layer_of(path)
        if layer is None:
            yield path, 1, "its folder is not in tests/tidy/layers.py"
            continue
        for line, header, quoted in includes(code):
            if not quoted or header.split("/")[0] not in SOURCE_FOLDERS:
                continue
            if not may_include(layer, header):
                yield path, line, f'{layer} may not include "{header}"'
            for folder, facade in FACADES.items():
                outside = layer != folder and header not in EXTRA_HEADERS.get(layer, [])
                if layer_of(header) == folder and outside and header not in facade:
                    yield path, line, f'"{header}" is private to {folder}; include {facade[0]}'


def rule_paths(tree):
    """Our headers are included from the root of the tree, and exist."""
    for path, code in tree.code.items():
        for line, header, quoted in includes(code):
            if quoted and header.split("/")[0] in SOURCE_FOLDERS and header not in tree.files:
                yield path, line, f'"{header}" does not exist'
            if quoted and "/" not in header and f"{pathlib.PurePosixPath(path).parent}/{header}" in tree.files:
                yield path, line, f'"{header}": give the path from the root of the tree'


def rule_external(tree):
    """Each library of others is seen by the files it is meant for only."""
    for path, code in tree.code.items():
        for line, header, _ in includes(code):
            for pattern, allowed in EXTERNAL.items():
                if re.match(pattern, header) and not any(re.search(a, path) for a in allowed):
                    yield path, line, f"may not include <{header}>"


def rule_length(tree):
    """Files that a reader can hold."""
    for path, text in tree.files.items():
        lines = text.count("\n")
        if suffix(path) in LENGTH_SUFFIXES and lines > MAX_LINES:
            yield path, lines, f"{lines} lines; at most {MAX_LINES}"


def rule_registered(tree):
    """Every source and every test is named in a CMakeLists.txt above it."""
    lists = {path[: -len("CMakeLists.txt")]: set(re.findall(r"[\w./+-]+", re.sub(r"#[^\n]*", "", text)))
             for path, text in tree.files.items() if path.endswith("CMakeLists.txt")}
    for path in tree.files:
        is_test = path.startswith("tests/") and path.endswith("_test.py")
        if suffix(path) != ".cc" and not is_test:
            continue
        if not any(path.startswith(folder) and path[len(folder):] in names
                   for folder, names in lists.items()):
            yield path, 1, "is named in no CMakeLists.txt"


def rule_targets(tree):
    """Each target and each entry of ctest has its own name, those too that only some builds have."""
    seen = set()
    for path, text in tree.files.items():
        if not path.endswith("CMakeLists.txt"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r"\s*ty_(?!use_)\w+\(NAME ([\w-]+)", line)
            if match and match.group(1) in seen:
                yield path, number, f"there is another {match.group(1)}"
            if match:
                seen.add(match.group(1))


def code_rule(pattern, message):
    def rule(tree):
        for path, code in tree.code.items():
            for number, line in enumerate(code.splitlines(), 1):
                if re.search(pattern, line):
                    yield path, number, message
    return rule


def text_rule(pattern, message, skip=()):
    def rule(tree):
        for path, text in tree.files.items():
            if path.startswith("tests/tidy/") or path in skip:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(pattern, line):
                    yield path, number, message
    return rule


RULES = {
    "layers": rule_layers,
    "paths": rule_paths,
    "external": rule_external,
    "length": rule_length,
    "registered": rule_registered,
    "targets": rule_targets,
    "environment": code_rule(r"\b(secure_)?getenv\b|\bputenv\b|\bsetenv\b",
                             "only main files read the environment"),
    # abort and terminate unqualified are taken for members of ours.
    "exit": code_rule(r"(\bstd::|(?<![\w:>])::)(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(|"
                      r"(?<![\w.>:~])(exit|_exit|_Exit|quick_exit)\s*\(",
                      "only main files exit; return a Status"),
    "sleep": code_rule(r"\bsleep_(for|until)\b|\b(u|nano)?sleep\s*\(|\bclock_nanosleep\b",
                       "wait on a condition or poll with a deadline"),
    "clock": code_rule(r"\b(system|steady|high_resolution)_clock\s*::\s*now\b|\bgettimeofday\b|"
                       r"\bclock_gettime\b|(\bstd::|(?<![\w.:>])::|(?<![\w.:>]))time\s*\(\s*(0|nullptr|NULL|&)",
                       "take the time from a Clock"),
    "random": code_rule(r"\bs?rand\s*\(|\brandom_device\b|\bmt19937|\bdefault_random_engine\b|\bdrand48\b",
                        "take random numbers from base/core/rng.h"),
    "regex": code_rule(r"\bstd::w?s?regex\b|#\s*include\s*<regex>", "std::regex is slow and recurses"),
    "detach": code_rule(r"(\.|->)detach\s*\(\s*\)", "a thread has an owner that joins it"),
    # A class whose constructor is private goes into its smart pointer at once.
    "new": code_rule(r"^(?!.*(_ptr<[^;]*>\s*\w*|\.reset|WrapUnique)[({]\s*new\b).*(?<!operator )\bnew\s+[A-Za-z_:(]",
                     "std::make_unique owns from the start"),
    "namespace": code_rule(r"\bnamespace\s+operator\b", "operator is a keyword; the namespace is control"),
    "tabs": text_rule(r"\t", "a tab", skip=("Makefile",)),
    "todo": text_rule(r"\b(TODO|FIXME|XXX|HACK)\b", "finish it or leave it out"),
    "machine": text_rule(r"(^|[\s\"'=(:])/(work|home|root|tmp/brief)/", "a path of one machine"),
    "numbers": text_rule(r"(?i)\bissues? #?\d", "say what, not which number it had"),
}


def allowances(text):
    """(rule, path pattern) pairs of allowed.txt; refuses a rule that does not exist."""
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or words[0] not in RULES:
            raise ValueError(f"allowed.txt:{number}: expected RULE PATH REASON, got '{line}'")
        result.append((words[0], words[1]))
    return result


def run(tree, allowed):
    """All breaches, as "path:line: message [rule]"."""
    found = []
    for name, rule in RULES.items():
        patterns = [pattern for rule_name, pattern in allowed if rule_name == name]
        for path, line, message in rule(tree):
            if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
                found.append(f"{path}:{line}: {message} [{name}]")
    return found
