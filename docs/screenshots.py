"""Pictures of pages in headless Chromium, at two widths, light and dark, to look at.

``python docs/screenshots.py OUT [PAGE ...]``, after the build; PAGE is a file of HTML, by default
the start page, a recipe and the reference in ``docs/_build``.  ``CHROMIUM`` names the browser.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT = Path(__file__).parent / "_build"
PAGES = ["index.html", "recipes/missing-values.html", "reference/config.html"]
WIDTHS, HEIGHT = (400, 1280), 1000
SCHEMES = {"light": 1, "dark": 0}
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--hide-scrollbars",
)
SECONDS = 120


def browser() -> str:
    """Return the command of a Chromium; end with a message if there is none."""
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    for name in filter(None, names):
        if command := shutil.which(name):
            return command
    raise SystemExit("screenshots: no Chromium is installed (apt-get install chromium)")


def screenshot(
    command: str, page: Path, picture: Path, width: int, scheme: int, height: int = HEIGHT
) -> None:
    """Write a picture of the top of a page.  Raises: CalledProcessError, TimeoutExpired."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        subprocess.run(
            [
                *(command, *OPTIONS),
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                f"--blink-settings=preferredColorScheme={scheme}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )


def main(directory: Path, pages: list[Path]) -> None:
    """Write a picture of each page at each width in each color scheme."""
    command = browser()
    directory.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for width in WIDTHS:
            for name, scheme in SCHEMES.items():
                picture = directory.resolve() / f"{page.stem}-{width}-{name}.png"
                screenshot(command, page, picture, width, scheme)
                print(picture)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    given = [Path(name) for name in sys.argv[2:]]
    main(Path(sys.argv[1]), given or [BUILT / name for name in PAGES])
