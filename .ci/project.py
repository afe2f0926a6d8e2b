"""Compare the project's own files with each other and with the code; exit with 1 for a difference.

``python .ci/project.py``: packages, versions, private attributes, calls of the operating system,
tuned numbers, links, configs, the reference pages and the names on the migration page.  Each check
returns what it found.
"""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(r"^(`{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def text_of(path: str, root: Path = ROOT) -> str:
    """Return the text of a file."""
    return (root / path).read_text(encoding="utf-8")


def script(path: str) -> Any:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def packages(root: Path = ROOT) -> list[str]:
    """Return folders that would not be installed, and files of tests with one name."""
    listed = set(tomllib.loads(text_of("pyproject.toml", root))["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(root) for path in (root / "mlpengine").rglob("*.py")}
    names = Counter(path.name for path in (root / "tests").rglob("test_*.py"))
    return [
        *(
            f"pyproject.toml: must list {name}"
            for f in folders
            if (name := ".".join(f.parts)) not in listed
        ),
        *(f"{f}: needs an __init__.py" for f in folders if not (root / f / "__init__.py").exists()),
        *(
            f"tests: {name} must be one file, as pytest imports by name"
            for name, n in names.items()
            if n > 1
        ),
    ]


def classes(root: Path = ROOT) -> list[str]:
    """Return public classes with one name in several modules."""
    places: dict[str, list[str]] = {}
    for folder in ("mlpengine", "cli"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(root)))
    return [f"{name}: is defined in {', '.join(at)}" for name, at in places.items() if len(at) > 1]


def version(root: Path = ROOT) -> list[str]:
    """Return files that name another version than the package."""
    (own,) = re.findall(r'^__version__ = "(.*)"', text_of("mlpengine/__init__.py", root), re.M)
    newest = re.findall(r"^## ([0-9.]+)", text_of("CHANGELOG.md", root), re.M)[0]
    cited = re.findall(r"^version: (\S+)$", text_of("CITATION.cff", root), re.M)
    pairs = (("CHANGELOG.md", newest), ("CITATION.cff", cited[0] if cited else "none"))
    return [f"{name}: must have the version {own} (got {got})" for name, got in pairs if got != own]


def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def links(root: Path = ROOT) -> list[str]:
    """Return links and names of files that lead nowhere in a clone."""
    pages = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "mlpengine").rglob("*.md"),
    ]
    dead = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            if "://" in link or link.startswith("mailto:"):
                continue
            if not target.exists() or (heading and heading not in anchors(target)):
                dead.append(f"{page.relative_to(root)}: {link} leads nowhere")
    scripts = [*pages, *filter(Path.is_file, (root / ".ci").glob("[a-z]*"))]
    named = re.compile(r"(?:\.ci/)?\b(?:configs|benchmarks|tests)/[\w./]+\.(?:yaml|py|csv)\b")
    for page in scripts:
        names = sorted({*named.findall(page.read_text(encoding="utf-8"))})
        dead += [
            f"{page.relative_to(root)}: there is no {name}"
            for name in names
            if not (root / name).exists()
        ]
    return dead


def speed(root: Path = ROOT) -> list[str]:
    """Return rows of the README's table of speed that the page of speed does not have."""

    def rows(text: str) -> Iterator[list[str]]:
        for line in text.splitlines():
            if line.startswith("|"):
                yield [cell.strip() for cell in line.strip("|").split("|")]

    whole = {
        row[0].replace(", batch", ","): row
        for row in rows(text_of("docs/background/speed.md", root))
    }
    short = [row for row in rows(text_of("README.md", root)) if row[0] in whole]
    wrong = [
        f"README.md: {name}: {set(figures) - {*whole[name]}} is not in docs/background/speed.md"
        for name, *figures in short
        if not {*figures} <= {*whole[name]}
    ]
    return wrong if len(short) >= 3 else [*wrong, "README.md: must quote three rows of speed"]


def configs() -> list[str]:
    """Return what the schema that editors use says of the configs in pages and examples."""
    from mlpengine.config import json_schema

    snippets, parser, found = script("docs/snippets.py"), YAML(typ="safe", pure=True), {}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in snippets.blocks(page):
            if block.kind == "yaml":
                found[f"{page.relative_to(ROOT)}:{block.line}"] = parser.load(block.text)
    for folder in ("configs", "examples"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            found[str(path.relative_to(ROOT))] = parser.load(path)
    schema = jsonschema.Draft202012Validator(json_schema())
    return [
        f"{place}: {error.json_path}: {error.message}"
        for place, config in found.items()
        for error in schema.iter_errors(config)
    ]


def pages() -> list[str]:
    """Return pages that are in no table of contents, and what the reference leaves out."""
    from mlpengine.config import json_schema
    from mlpengine.core.system import EXIT_CODES
    from mlpengine_cli.main import CLOSED_PIPE, COMMANDS

    docs, reference = ROOT / "docs", script("docs/reference_pages.py")
    listed = text_of("docs/index.md").split()
    own = {
        str(p.relative_to(docs).with_suffix(""))
        for p in docs.glob("*/*.md")
        if p.parent.name != "reference"
    }
    sources = [*(ROOT / "mlpengine").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    public = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path, text in texts.items()
        if "\n__all__ = " in text and path.is_relative_to(ROOT / "mlpengine")
    }
    public = {name for name in public if not re.search(r"\._|\.backends", name)}
    shown = {*re.findall(r"(?m)^\| `(\w+)` \| \S", reference.names())}
    schema = json_schema()
    keys = {k for part in (schema, *schema["$defs"].values()) for k in part.get("properties", {})}
    commands, config = reference.commands(), reference.config()
    codes = {
        int(code)
        for code in re.findall(r"^\| (\d+) \|", text_of("docs/reference/exit-codes.md"), re.M)
    }
    variables = {
        str(node.value)
        for text in texts.values()
        if "os.environ" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and re.fullmatch("[A-Z]{2,}_[A-Z_]+|CC", str(node.value))
    }
    missing = {
        "docs/index.md": own - {*listed},
        "docs/reference_pages.py, MODULES": {*reference.MODULES} ^ public,
        "the page of names": {
            n for m in reference.MODULES for n in importlib.import_module(m).__all__
        }
        - shown,
        "the page of commands": {n for n in COMMANDS if f"\n## mlpengine {n}\n" not in commands},
        "the page of the config": {k for k in keys if f"\n| `{k}` | " not in config},
        "docs/reference/exit-codes.md": {0, 1, 2, CLOSED_PIPE, *EXIT_CODES.values()} - codes,
        "docs/reference/environment.md": {
            n for n in variables if f"`{n}`" not in text_of("docs/reference/environment.md")
        },
    }
    return [
        f"{place}: lacks {name}"
        for place, names in missing.items()
        for name in sorted(map(str, names))
    ]


def cells(text: str) -> Iterator[tuple[str, str]]:
    """Yield the codes in the columns of ours of the migration page, each with its column's head."""
    head: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            head = []
            continue
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = row
        elif {*line} - {*"| -"}:
            for title, cell in zip(head[1:], row[1:], strict=True):
                yield from ((title, code) for code in re.findall("`([^`]+)`", cell))


def is_ours(title: str, code: str) -> bool:
    """Return whether an option, a key, a name or the callee and arguments of a call exist."""
    import mlpengine
    from mlpengine import estimators, models, nn, ops, optim
    from mlpengine.config.problems import key_paths
    from mlpengine.config.schema import Config
    from mlpengine.core.fields import options_of

    rooms = (mlpengine, nn, ops, optim, models, estimators)
    objects = {"mlp": mlpengine.Mlp, "step": mlpengine.TrainingStep, "grads": nn.Gradients}
    objects |= {"optimizer": optim.Optimizer, "estimator": mlpengine.MlpClassifier}
    if title == "estimator":
        return code in mlpengine.MlpClassifier().get_params()
    if title == "config key":
        return tuple(code.split(".")) in {*key_paths(Config)}
    for node in ast.walk(ast.parse(code, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            kind: Any = next(filter(None, (getattr(room, name, None) for room in rooms)), None)
            kind = mlpengine.TrainingStep.__call__ if name == "step" else kind
            if kind is None:
                return False
            is_class = isinstance(kind, type)
            takes = inspect.signature(kind.__init__ if is_class else kind).parameters
            known = {*takes, *(options_of(kind) if is_class else ())}
            places = [
                p for p in takes.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]
            if not {one.arg for one in node.keywords} <= known or len(node.args) >= len(places):
                return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = objects.get(node.value.id)
            made = owner and rf"self\.{node.attr}\b|^    {node.attr}: "  # by a method or a field
            if made and not (
                hasattr(owner, node.attr)
                or node.attr.endswith("_")
                or re.search(made, inspect.getsource(owner), re.M)
            ):
                return False
    return True


def migration() -> list[str]:
    """Return names of ours on the migration page that do not exist."""
    page = "docs/reference/migration.md"
    found = [one for one in cells(text_of(page)) if one[0] != "remarks"]
    wrong = [
        f"{page}: {code} is not in the code ({title})"
        for title, code in found
        if not is_ours(title, code)
    ]
    return wrong if len(found) > 100 else [*wrong, f"{page}: has {len(found)} names"]


DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}
"""Underscored names that the standard library documents: `os._exit`, those of named tuples."""


def private_reads(text: str) -> list[str]:
    """Return the private attributes that a module uses and does not define itself.

    It defines what it names in a statement, or assigns to `self` or `cls`.
    """
    own = {*DOCUMENTED}
    reads: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls"):
                reads.append((node.lineno, node.attr))
            elif isinstance(node.ctx, ast.Store):
                own.add(node.attr)
    return [f"{n}: reads {a}" for n, a in sorted(reads) if a not in own and not a.endswith("__")]


def private(root: Path = ROOT) -> list[str]:
    """Return reads of private attributes of another module's objects."""
    files = [path for room in ("mlpengine", "cli") for path in sorted((root / room).rglob("*.py"))]
    return [
        f"{path.relative_to(root)}:{one}"
        for path in files
        for one in private_reads(text_of(str(path.relative_to(root)), root))
    ]


DIFFERS = re.compile(
    r"sys\.platform|os\.name\b|platform\.system\(|hasattr\((os|signal|sys|time|mmap)\b"
    r"|getattr\((os|signal|time|mmap)\b|import (fcntl|msvcrt|resource|termios|winreg)\b"
    r"|\bO_[A-Z]*(FOLLOW|CLOEXEC|DIRECTORY|BLOCK|BINARY|TEMPORARY)|\bSIG(HUP|BREAK|KILL|USR)"
    r"|os\.(setsid|killpg|fork|getuid|mkfifo|fchmod|p(read|write)v?)\b"
    r"|os\.(sched|memfd|pidfd|posix)_|[\"']/(proc|sys|dev)/"
)
"""What differs between operating systems: only `core/system.py` asks for it."""

LOCK = re.compile(r"\b(R?Lock|Condition|Semaphore)\(")
"""What is held during a fork where `core/fork_locks.py` made it."""


def system(root: Path = ROOT) -> list[str]:
    """Return modules that ask for the operating system, or make locks, in place of those for it."""
    rules = ((DIFFERS, {"system.py"}), (LOCK, {"system.py", "fork_locks.py"}))
    return [
        f"{path.relative_to(root)}: {found[0]} belongs into {' or '.join(sorted(places))}"
        for room in ("mlpengine", "cli")
        for path in sorted((root / room).rglob("*.py"))
        for rule, places in rules
        if path.name not in places
        for found in rule.finditer(path.read_text(encoding="utf-8"))
    ]


TUNED_ROOMS = ("mlpengine/diagnostics", "mlpengine/data/features")
NO_THRESHOLDS = {"STATE_VERSION", "SHOWN_LAYERS", "SHOWN_SAMPLES"}
"""Numbers that are no threshold: versions of formats, sizes of charts."""


def is_number(node: ast.expr) -> bool:
    """Return whether an expression is made of literal numbers alone."""
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def tuned_numbers(text: str) -> set[str]:
    """Return the UPPER_CASE names that a module, or a class of it, gives literal numbers."""
    tree = ast.parse(text)
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    found = set()
    for node in (one for body in bodies for one in body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for one in targets for n in ast.walk(one) if isinstance(n, ast.Name)}
    return {name for name in found if name.isupper()} - NO_THRESHOLDS


def thresholds(root: Path = ROOT) -> list[str]:
    """Return tuned numbers outside the table of their room, or without use or origin in it."""
    from mlpengine.core.tuned import BY_HAND

    problems = []
    texts = [
        path.read_text(encoding="utf-8")
        for path in root.glob("mlpengine/**/*.py")
        if path.parent.name != "core"
    ]
    used = "\n".join(texts)
    for room in TUNED_ROOMS:
        for path in sorted((root / room).glob("*.py")):
            names = tuned_numbers(path.read_text(encoding="utf-8"))
            problems += [f"{room}/{path.name}: {name} belongs into thresholds.py" for name in names]
        tree = ast.parse(text_of(f"{room}/thresholds.py", root))
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"tuned"}
        problems += [
            f"{room}: {name} is not used" for name in sorted(names) if used.count(name) < 2
        ]
        scripts = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            _, unit, meaning, *origins = call.args
            chosen_by = [
                scripts[o.id] if isinstance(o, ast.Name) else ast.literal_eval(o) for o in origins
            ]
            known = all(one == BY_HAND or (root / one).exists() for one in chosen_by)
            if not (ast.literal_eval(unit) and ast.literal_eval(meaning) and known):
                problems.append(
                    f"{room}/thresholds.py:{call.lineno}: needs a unit, a meaning and an origin"
                )
    return problems


CHECKS = (packages, classes, version, private, system, thresholds)
CHECKS += (links, speed, configs, pages, migration)

if __name__ == "__main__":
    problems = [problem for check in CHECKS for problem in check()]
    print(*problems, sep="\n")
    sys.exit(bool(problems))
