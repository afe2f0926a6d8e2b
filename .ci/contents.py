"""Compare an sdist and a wheel with the files they were built from.

``python .ci/contents.py TREE SDIST WHEEL`` prints what one has and the other lacks.
"""

import re
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

BUILT = re.compile(r"PKG-INFO|setup\.cfg|[\w.-]+\.(?:egg|dist)-info/.*")
"""Files that the build writes."""

RELATIVE = re.compile(r"\]\((?!\w+:|#)([^)\s]*)")


def problems(tree: set[str], sdist: Path, wheel: Path) -> list[str]:
    """Return what the two have or lack beside the files of `tree`, and dead links of their page."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    with ZipFile(wheel) as archive:
        wheel_names = set(archive.namelist())
        page = next(name for name in wheel_names if name.endswith(".dist-info/METADATA"))
        links = RELATIVE.findall(archive.read(page).decode())
    installed = {re.sub("^cli/", "mlpengine_cli/", name) for name in tree}
    installed = {name for name in installed if name.startswith(("mlpengine/", "mlpengine_cli/"))}
    wrong = [
        f"{where.name}: {'has' if name in archived else 'lacks'} {name}"
        for archived, expected, where in ((names, tree, sdist), (wheel_names, installed, wheel))
        for name in sorted(archived ^ expected)
        if not BUILT.fullmatch(name)
    ]
    return wrong + [f"{wheel.name}: {link} leads nowhere outside the repository" for link in links]


def main(tree: Path, sdist: Path, wheel: Path) -> int:
    """Print what is wrong, and return 1 if anything is."""
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    wrong = problems(files, sdist, wheel)
    print("\n".join(wrong), end="\n" if wrong else "")
    print(f"{len(files)} files: {len(wrong)} problems")
    return min(len(wrong), 1)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
