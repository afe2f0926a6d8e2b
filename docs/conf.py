"""Settings of the documentation; build it with the command that the README names."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import demo_page
import reference_pages

import mlpengine

project = "mlpengine"
author = "The mlpengine developers"
copyright = author
version = release = mlpengine.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nitpicky = False

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
default_role = "code"
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"mlpengine {version}"
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "search_scorer.js")


HEADING = re.compile(r"(\s*)(Shapes|Dtype|Units|Backward|Raises|Source): (.*)")
"""The first line of a section of the project's docstrings; the following ones are indented."""


def to_rst(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Rewrite a docstring of the project, which is prose with code in backticks, as RST."""
    rewritten: list[str] = []
    section, literal = "", -1
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if literal >= 0 and (not line or indent > literal):
            rewritten.append(line)
            continue
        literal = indent if line.endswith("::") else -1
        if match := HEADING.fullmatch(line):
            section = match[1] + "    "
            rewritten += ["", f"{match[1]}**{match[2]}:** {escaped(match[3])}"]
        elif section and line.startswith(section):
            rewritten[-1] += " " + escaped(line.strip())
        else:
            section = ""
            rewritten.append(line if line.lstrip().startswith((">>>", "...")) else escaped(line))
    lines[:] = rewritten


def escaped(line: str) -> str:
    """Escape what RST would read as markup outside of backticks, except a list's bullet."""
    bullet = re.match(r"\s*(\* )?", line)
    assert bullet is not None
    parts = line[bullet.end() :].split("`")
    parts[::2] = [re.sub(r"([*|]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    return bullet[0] + "`".join(parts)


TITLED = re.compile(r'^```(\w+) title="([^"]+)"$', re.MULTILINE)
"""The first line of a block that `snippets` writes to a file."""


def complete(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add what the code says, and show the name of the file above a block that is to be saved."""
    source[0] = reference_pages.complete(page, source[0])
    source[0] = TITLED.sub(r"```{code-block} \1\n:caption: \2\n", source[0])


def add_demo_page(app: Sphinx, error: Exception | None) -> None:
    """Write the page that predicts beside the built pages."""
    if error is None and app.builder.format == "html":
        demo_page.write(Path(app.outdir) / demo_page.PAGE)


def setup(app: Sphinx) -> None:
    """Complete pages when they are read, those that follow from the code in every build."""
    app.connect("build-finished", add_demo_page)
    app.connect("source-read", complete)
    app.connect("env-get-outdated", lambda *_: list(reference_pages.PAGES))
    app.connect("autodoc-process-docstring", to_rst, priority=400)
