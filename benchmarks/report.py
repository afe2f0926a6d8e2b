"""The pages of `mlpengine report`: their size and time, and what a browser makes of them.

``python benchmarks/report.py`` (``--smoke`` for short runs) trains digits, a made-up table of
diamonds' size and kinds, a run that fails, a sweep, and three runs that are compared, and writes
the page of each.  Each page must be below 500 KB and take under 0.3 s of CPU time after training.

Where Chromium is installed, each page is opened at 400 and 1,280 pixels, light and dark: there must
be no message on the console, no request, no horizontal scrolling, and the same text with scripts
switched off.  ``--axe node_modules/axe-core/axe.min.js`` also looks for serious violations of
accessibility (``npm install axe-core``).  ``--keep DIRECTORY`` keeps pages and pictures, to look
at.  ``CHROMIUM`` names the browser; without one the check says that it did not run.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

import mlpengine_cli.pictures
import mlpengine_cli.train
from mlpengine_cli.main import run

LIMIT, SECONDS = 500_000, 0.3
Looks = tuple[tuple[int, str], ...]
EVERY_LOOK: Looks = ((400, "light"), (400, "dark"), (1280, "light"), (1280, "dark"))
TWO_LOOKS: Looks = ((400, "light"), (1280, "dark"))
BAD = """<!DOCTYPE html><html lang="en"><title>Bad</title><p style="width: 3000px; color: #eee">wide
<img src="missing.png"><script>console.log("loud"); document.title = "more"
document.body.append("more ".repeat(200))</script></html>"""
"""A page that must be refused, for its console, a request, its width and its contrast."""

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
NO_EXTRAS = "report: {plots: false, tensorboard: false}\n"
DIAMONDS = "data: {source: stones.csv, target: price, drop: number}\nmodel: {hidden: [64, 64]}\n"
SWEEP = """\
sweep:
  trials: TRIALS
  sampler: random
  space:
    optimizer.lr: {log: [1e-4, 1e-1]}
    model.hidden: {choice: [[8], [16], [32, 16]]}
"""


class Browser:
    """A headless Chromium, spoken to in its DevTools protocol through two pipes."""

    def __init__(self, command: str, profile: str) -> None:
        reads, chromium_writes = os.pipe()
        chromium_reads, writes = os.pipe()

        def pipes() -> None:
            os.dup2(chromium_reads, 3)
            os.dup2(chromium_writes, 4)

        os.set_inheritable(chromium_reads, True)
        os.set_inheritable(chromium_writes, True)
        self._process = subprocess.Popen(
            [command, *OPTIONS, f"--user-data-dir={profile}"],
            close_fds=False, preexec_fn=pipes,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(chromium_reads)
        os.close(chromium_writes)
        self._in, self._out = os.fdopen(writes, "wb", 0), os.fdopen(reads, "rb")
        self._number, self._rest, self.events = 0, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method: str) -> None:
        """Wait for an event."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read())

    def evaluate(self, text: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True,
                           returnByValue=True)  # fmt: skip
        if "exceptionDetails" in result:
            raise SystemExit(f"{text[:60]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()
        self._in.close()
        self._out.close()

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._out.fileno(), 1 << 16)
            if not data:
                raise SystemExit("report: Chromium ended early")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


def check_page(
    browser: Browser, page: Path, views: Looks, axe: str = "", pictures: Path | None = None
) -> list[str]:
    """Open a page in each of some widths and color schemes; return what is wrong."""
    wrong, text = [], ""
    for width, scheme in views:
        where = f"{page.stem}, {width} pixels, {scheme}"
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                     deviceScaleFactor=1, mobile=False)  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.call("Emulation.setEmulatedMedia", features=[feature])
        text = opened(browser, page)
        for event in browser.events:
            problem = complaint(event, page)
            wrong += [f"{where}: {problem}"] if problem else []
        wide = browser.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            wrong.append(f"{where}: is {wide} pixels wide")
        if axe:
            browser.evaluate(axe)
            wrong += [f"{where}: {one}" for one in violations(browser)]
        if pictures:
            save_picture(browser, pictures / f"{page.stem}-{width}-{scheme}.png")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    if opened(browser, page) != text or len(text) < 300:
        wrong.append(f"{page.stem}: has other text without scripts")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    return wrong


def check_the_check(browser: Browser, page: Path, axe: str) -> list[str]:
    """Return what a page that must be refused is not refused for."""
    page.write_text(BAD)
    known = " ".join(check_page(browser, page, TWO_LOOKS, axe))
    kinds = ["console: ", "request: ", "pixels wide", "other text without scripts"]
    kinds += ["color-contrast", "image-alt"] if axe else []
    return [f"the check does not see: {kind}" for kind in kinds if kind not in known]


def opened(browser: Browser, page: Path) -> str:
    """Open a page and return its text."""
    browser.events.clear()
    browser.call("Page.navigate", url=page.resolve().as_uri())
    browser.wait("Page.loadEventFired")
    return browser.evaluate("document.body.innerText")


def complaint(event: dict[str, Any], page: Path) -> str:
    """Return what is wrong with an event: a message on the console, or a request."""
    method, details = event.get("method"), event.get("params", {})
    if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        return f"console: {json.dumps(details)[:300]}"
    if method == "Network.requestWillBeSent":
        url = details["request"]["url"]
        if url != page.resolve().as_uri() and not url.startswith("data:"):
            return f"request: {url}"
    return ""


def violations(browser: Browser) -> list[str]:
    """Return the serious violations that axe reports."""
    shown = browser.evaluate(
        "axe.run().then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => `${v.id}: ${v.help} (${v.nodes.length}, such as ${v.nodes[0].html})`))"
    )
    return [one[:400] for one in shown]


def save_picture(browser: Browser, path: Path) -> None:
    """Write a picture of the whole page."""
    tall = browser.evaluate("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": browser.evaluate("innerWidth"), "height": tall, "scale": 1}
    data = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    path.write_bytes(base64.b64decode(data))


def stones(path: Path, rows: int) -> None:
    """Write a table with a target that follows from sizes and grades."""
    rng = np.random.default_rng(0)
    carat = np.round(rng.gamma(3, 0.3, rows) + 0.2, 2)
    grade, color = rng.integers(0, 5, rows), rng.integers(0, 7, rows)
    side = np.round(6.5 * carat ** (1 / 3) + 0.05 * rng.standard_normal(rows), 2)
    price = 3000 * carat**1.7 * (1 + 0.15 * grade) * (1.2 - 0.06 * color)
    price = np.round(price * np.exp(0.1 * rng.standard_normal(rows)))
    names = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
    lines = ["number,carat,side,cut,color,price"]
    for k, (c, s, g, o, p) in enumerate(zip(carat, side, grade, color, price, strict=True)):
        lines.append(f"{k},{c},{s if k % 50 else ''},{names[g]},{'DEFGHIJ'[o]},{p:.0f}")
    path.write_text("\n".join(lines) + "\n")


def call(*arguments: str, code: int = 0) -> None:
    """Run the command line in this process, quietly."""
    done = run(list(arguments))
    if done != code:
        raise SystemExit(f"mlpengine {' '.join(arguments)}: exit code {done}")


def make(smoke: bool) -> tuple[list[Path], list[float]]:
    """Make the runs and their pages; return the pages, and the CPU seconds of each in `train`."""
    seconds: list[float] = []
    write_page = mlpengine_cli.pictures.page

    def timed(*arguments: Any) -> Any:
        began = process_time()
        try:
            return write_page(*arguments)
        finally:
            seconds.append(process_time() - began)

    mlpengine_cli.train.page = timed  # type: ignore[attr-defined]
    epochs = 3 if smoke else 30
    digits = f"data: {{source: digits}}\ntraining: {{epochs: {epochs}, clip_norm: 1.0}}\n"
    stones(Path("stones.csv"), 2_000 if smoke else 50_000)
    some = min(epochs, 6)
    classes = f"data: {{source: penguins}}\ntraining: {{epochs: {some}}}\n"
    configs = {
        "digits": digits,
        "diamonds": f"{DIAMONDS}training: {{epochs: {some}, batch_size: 128}}\n",
        "broken": f"{digits}optimizer: {{name: sgd, lr: 1.0e+30}}\n",
        "sweep": classes + SWEEP.replace("TRIALS", "4" if smoke else "16"),
    }
    for name, content in configs.items():
        Path(f"{name}.yaml").write_text(content + NO_EXTRAS)
    call("train", "digits.yaml", "-q", "--out", "digits")
    call("train", "diamonds.yaml", "-q", "--out", "diamonds")
    call("train", "broken.yaml", "-q", "--out", "broken", code=1)
    call("sweep", "sweep.yaml", "-q", "--out", "sweep")
    for k, rate in enumerate(("1e-4", "1e-2")):
        call("train", "digits.yaml", "-q", "--out", f"digits-{k}", "--set", f"optimizer.lr={rate}")
    call("report", "digits", "digits-0", "digits-1", "-o", "three.html")
    pages = [Path("three.html")]
    for name in configs:
        pages.append(Path(f"{name}.html"))
        shutil.copyfile(Path(name, "report.html"), pages[-1])
    return pages, seconds


@contextmanager
def quiet() -> Iterator[None]:
    """Send what commands print to the null device."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, copy in enumerate(kept, start=1):
                os.dup2(copy, number)
                os.close(copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    command = next((path for name in names if name and (path := shutil.which(name))), None)
    axe = given.axe.read_text(encoding="utf-8") if given.axe else ""
    keep = given.keep.resolve() if given.keep else None
    here, wrong = Path.cwd(), []
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        os.chdir(directory)
        with quiet():
            pages, seconds = make(given.smoke)
        for page in pages:
            size = page.stat().st_size
            print(f"{page.name:<14} {size / 1e3:6.0f} KB")
            wrong += [f"{page.stem}: has {size:,} bytes"] if size > LIMIT else []
        print(f"CPU seconds of a page after training: {', '.join(f'{s:.2f}' for s in seconds)}")
        if not given.smoke:
            wrong += [f"a page took {s:.2f} s" for s in seconds if s > SECONDS]
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for page in pages:
                shutil.copyfile(page, keep / page.name)
        if command is None:
            print("NOT CHECKED IN A BROWSER: no Chromium is installed (apt-get install chromium)")
        else:
            views = TWO_LOOKS if given.smoke else EVERY_LOOK
            browser = Browser(command, directory + "/profile")
            try:
                wrong += check_the_check(browser, Path("bad.html"), axe)
                for page in pages:
                    wrong += check_page(browser, page, views, axe, keep)
            finally:
                browser.close()
            count = len(pages) * len(views)
            print(f"opened in Chromium {count} times: console, requests, width, no scripts")
            if not axe:
                print("NOT CHECKED FOR ACCESSIBILITY: give --axe (npm install axe-core)")
        os.chdir(here)
    print("\n".join(wrong) or "nothing is wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
