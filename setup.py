"""What a package index shows: the project's addresses, and README.md with links that work there.

Everything else is in pyproject.toml.
"""

import re
from pathlib import Path

REPOSITORY = "https://repository.invalid/mlpengine"
"""The address of the repository, written here alone; the release workflow refuses a wrong one."""


def at(version: str, kind: str = "blob") -> str:
    """Return the address of a version's files: `blob` shows pages, `raw` gives pictures."""
    return f"{REPOSITORY}/{kind}/v{version}/"


def absolute(text: str, version: str) -> str:
    """Return a page of Markdown whose links to files of the repository have its address."""
    return re.sub(
        r"(!?)\[[^\]]*\]\((?!\w+:|#)",
        lambda link: link[0] + at(version, "raw" if link[1] else "blob"),
        text,
    )


def main() -> None:
    """Give setuptools what follows from the address and the version."""
    from setuptools import setup

    root = Path(__file__).parent
    package = (root / "mlpengine" / "__init__.py").read_text(encoding="utf-8")
    version = package.partition('\n__version__ = "')[2].partition('"')[0]
    setup(
        long_description=absolute((root / "README.md").read_text(encoding="utf-8"), version),
        long_description_content_type="text/markdown",
        project_urls={
            "Repository": REPOSITORY,
            "Documentation": at(version) + "docs/start.md",
            "Changelog": at(version) + "CHANGELOG.md",
            "Issues": f"{REPOSITORY}/issues",
        },
    )


if __name__ == "__main__":
    main()
