"""Changed files of sweeps and runs: journals and configs whose values nobody would write."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hostile import VALUES, nodes
from ruamel.yaml import YAML

YAML_1_2 = YAML(typ="safe", pure=True)


def replaced(tree: Any, rng: Random) -> Any:
    """Return JSON or YAML data with another value at one of its nodes."""
    tree = json.loads(json.dumps(tree))
    *above, key = rng.choice(list(nodes(tree)))
    parent = tree
    for step in above:
        parent = parent[step]
    parent[key] = rng.choice(VALUES)
    return tree


def damaged(data: bytes, rng: Random) -> bytes:
    """Return bytes that end too early, or some of which have changed."""
    if rng.random() < 0.5:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice([1, 5])):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def journals(journal: bytes, count: int) -> Iterator[bytes]:
    """Yield changed journals: of records that are lost, repeated, out of order or altered."""
    for seed in range(count):
        rng, lines = Random(seed), journal.splitlines()
        at = rng.randrange(len(lines))
        match seed % 5:
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                yield damaged(journal, rng)
                continue
            case _:
                text = json.dumps(replaced(json.loads(lines[at]), rng))
                lines[at] = text.encode()
        yield b"\n".join([*lines, b""])


EDITS: list[dict[str, Any]] = [
    {"model": {"hidden": [7]}},
    {"model": {"hidden": [4, 4]}},
    {"model": {"hidden": []}},
    {"data": {"source": "diabetes", "target": None}},
    {"data": {"split": {"validation": 0.5}}},
    {"loss": {"name": "mse"}},
    {"training": {"folds": 3}},
]
"""Edits of a config that leave it valid."""

FILES = ("config.resolved.yaml", "result.json", "environment.json", "metrics.csv")
FILES += ("diagnostics.csv", "timings.csv", "model.safetensors")


def changes(run: Path, count: int) -> Iterator[None]:
    """Change a file of a run, and yield; `count` times after the edits of its config."""
    config = run / FILES[0]
    plain = YAML_1_2.load(config.read_text(encoding="utf-8"))
    for edit in EDITS:
        write(config, merged(plain, edit))
        yield
    write(config, plain)
    samples = run / "diagnostics.csv"
    before = samples.read_bytes()
    for length in (0, len(before) // 2):
        samples.write_bytes(before[:length])
        yield
    samples.write_bytes(before)
    for seed in range(count):
        rng = Random(seed)
        write(config, replaced(plain, rng) if seed % 2 else plain)
        path = run / FILES[seed // 2 % len(FILES)]
        before = path.read_bytes()
        if not seed % 2 and path.suffix == ".json" and seed % 4:
            path.write_text(json.dumps(replaced(json.loads(before), rng)), encoding="utf-8")
        elif not seed % 2:
            path.write_bytes(damaged(before, rng))
        yield
        path.write_bytes(before)


def merged(tree: Any, edit: Any) -> Any:
    """Return a mapping with the values of an edit in it."""
    if not isinstance(tree, dict) or not isinstance(edit, dict):
        return edit
    return {**tree, **{key: merged(tree.get(key), value) for key, value in edit.items()}}


def write(path: Path, tree: Any) -> None:
    """Write a config."""
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        YAML_1_2.dump(tree, file)
