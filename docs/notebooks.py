"""Runs the notebooks of examples/: ``python docs/notebooks.py`` stores what they show.

``--check`` stores nothing.  Either ends with 1 where a cell fails.  ``--pictures`` runs nothing: it
draws the pictures of docs/recipes/notebooks.md, with nbconvert and Chromium (see screenshots.py).
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

PICTURES = Path(__file__).parent / "pictures"
EXAMPLES = Path(__file__).parents[1] / "examples"
SECONDS = 300


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with new outputs, without progress and without times.

    Raises: CellExecutionError if a cell fails.
    """
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": EXAMPLES}}).execute()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [
                one
                for one in cell.outputs
                if one.get("name") != "stderr" and one.get("data") != {"text/plain": ""}
            ]
    return notebook


def pictures() -> None:
    """Write the tops of two notebooks, in the light and in the dark theme of JupyterLab."""
    from nbconvert import HTMLExporter
    from screenshots import SCHEMES, browser, screenshot

    for name, theme, height in (("table", "light", 940), ("own_loop", "dark", 1560)):
        page, _ = HTMLExporter(theme=theme).from_filename(str(EXAMPLES / f"{name}.ipynb"))
        picture = PICTURES.resolve() / f"notebook-{theme}.png"
        with TemporaryDirectory() as directory:
            path = Path(directory) / "notebook.html"
            path.write_text(page, encoding="utf-8")
            screenshot(browser(), path, picture, 1000, SCHEMES[theme], height)
        print(picture)


def main(*, store: bool) -> int:
    """Run all notebooks; return 1 if one fails."""
    failed = 0
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        try:
            notebook = executed(path)
        except CellExecutionError as error:
            print(f"{path.name}: failed\n{error}")
            failed = 1
            continue
        if store:
            nbformat.write(notebook, path)
        print(f"{path.name}: ok")
    return failed


if __name__ == "__main__":
    if "--pictures" in sys.argv[1:]:
        sys.exit(pictures())
    sys.exit(main(store="--check" not in sys.argv[1:]))
