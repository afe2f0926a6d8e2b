"""Files whose hash is right and whose contents are not: changed headers of model files."""

import json
from collections.abc import Iterator
from typing import Any

from safetensors.numpy import save

from mlpengine.nn.safetensors_file import METADATA_KEY, digest

VALUES: list[Any] = [
    *(None, True, -1, 0, 2, 1.5, 1e300, 10**400, "", "x", "\ud800", "none", [], [[]], {}, [None]),
    *(["size", "", ""], {"name": "dropout"}, {"x": 1}, [2, 20000, 20000, 3], "float64", "number"),
    *("size * nothing", "size.__class__", "(" * 5_000, "gap + 1", "size > 0", "size / 0"),
    *("1 > 0", "where(1 > 0, size, 2)"),
]


def nodes(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every node below the root of a JSON tree."""
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield (*path, key)
        yield from nodes(tree[key], (*path, key))


def mutations(
    header: dict[str, Any], start: int, each: int = 3
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changed headers: at each node a deletion, a copy, and the next few of the values."""
    text = json.dumps(header)  # read anew for each change, which is faster than a copy
    for i, (*above, key) in enumerate(nodes(json.loads(text))):
        chosen = [VALUES[(start + each * i + j) % len(VALUES)] for j in range(each)]
        for change in ("drop", "double", *chosen):
            changed = json.loads(text)
            parent = changed
            for step in above:
                parent = parent[step]
            if change == "drop":
                del parent[key]
            elif change == "double" and isinstance(parent, list):
                parent.append(parent[key])
            elif change == "double":
                parent[f"{key}s"] = parent[key]
            else:
                parent[key] = change
            yield f"{'.'.join(map(str, (*above, key)))} = {change!r}", changed


def write(path, arrays, header):
    """Write a file as `write_tensors` does, whatever it holds, without waiting for the disk."""
    text = json.dumps({"header": header, "sha256": digest(arrays, header)}, sort_keys=True)
    path.write_bytes(save(arrays, {METADATA_KEY: text}))
    return path
