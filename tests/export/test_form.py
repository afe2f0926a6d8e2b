"""The page that predicts, in headless Chromium: what is typed gives what `predict` gives."""

import html
import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest

import mlpengine
from mlpengine.export import FORMATS, export

BROWSER = shutil.which(os.environ.get("CHROMIUM", "chromium"))
SCRIPT = "shown => [...shown.querySelectorAll('p, td')].map(one => one.textContent)"


class Page:
    """A page in a browser, driven by the DevTools protocol through two pipes."""

    def __init__(self, send, receive):
        self.send, self.receive, self.count, self.events = send, receive, 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]

    session = None

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.send.write(json.dumps(message).encode() + b"\0")
        self.send.flush()
        while (answer := self.read()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def read(self):
        text = b""
        while not text.endswith(b"\0"):
            one = self.receive.read(1)
            assert one, "the browser has ended"
            text += one
        return json.loads(text[:-1])

    def value(self, expression):
        done = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def open(self, path):
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.as_uri())
        ready = "document.readyState === 'complete' && location.protocol === 'file:'"
        for _ in range(10_000):
            if self.value(ready):
                return
        raise AssertionError("the page did not load")


@contextmanager
def chromium(folder):
    """Open a browser, and end it."""
    command_in, our_out = os.pipe()
    our_in, command_out = os.pipe()
    options = "--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
    line = f'exec "{BROWSER}" {options} --user-data-dir="{folder}" '
    line += f"3<&{command_in} 4>&{command_out}"
    process = subprocess.Popen(
        ["bash", "-c", line], pass_fds=(command_in, command_out), stderr=subprocess.DEVNULL
    )
    os.close(command_in)
    os.close(command_out)
    with os.fdopen(our_out, "wb") as send, os.fdopen(our_in, "rb", buffering=0) as receive:
        try:
            yield Page(send, receive)
        finally:
            process.terminate()
            process.wait()


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_ten_typed_rows_give_our_predictions(flats, tmp_path):
    path = tmp_path / "form.html"
    export(flats, path)
    rng = np.random.default_rng(1)
    rows = [
        {
            "area": "" if i == 3 else f"{rng.uniform(20, 200):.1f}",
            "rooms": f"{1 + i % 5}",
            "kind": ["old", "n\u00a0e\r\u200d\tw", "</script>", "", "(another one)"][i % 5],
            "sold": f"2024-{i + 1:02}-17",
            "lift": ["true", "false", ""][i % 3],
        }
        for i in range(10)
    ]
    with chromium(tmp_path / "profile") as page:
        page.call("Emulation.setDeviceMetricsOverride", width=400, height=900, mobile=False,
                  deviceScaleFactor=1)  # fmt: skip
        page.open(path)
        assert page.value("document.documentElement.scrollWidth") <= 400
        names = page.value("[...document.querySelectorAll('label')].map(one => one.textContent)")
        assert names == flats.columns
        for row in rows:
            typed = json.dumps([row[name] for name in names])
            lines = page.value(
                f"{typed}.forEach((cell, i) => {{ const box = document.getElementById(`c${{i}}`);"
                "box.value = cell; box.dispatchEvent(new Event('input', {bubbles: true})); });"
                f"({SCRIPT})(document.querySelector('#prediction'))"
            )
            table = {name: [cell] for name, cell in row.items()}
            low, high = flats.predict_interval(table)
            expected = [flats.predict(table)[0], low[0], high[0]]
            shown = f"{lines[0]} {lines[1].partition('between')[2]}".replace(",", "")
            numbers = [*map(float, re.findall(r"-?\d+(?:\.\d+)?", shown))]
            np.testing.assert_allclose(numbers, expected, rtol=2e-5)
        sent = [
            one["params"]["request"]["url"]
            for one in page.events
            if one.get("method") == "Network.requestWillBeSent"
        ]
        assert {url.partition(":")[0] for url in sent} <= {"file", "data"}
        assert len([url for url in sent if url.startswith("file:")]) == 1
        logged = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
        assert not logged & {one.get("method") for one in page.events}


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_a_page_of_classes_shows_the_set_of_predict(tmp_path):
    model, _ = mlpengine.fit("penguins", model={"hidden": [8]}, training={"folds": 3, "epochs": 6})
    path = tmp_path / "form.html"
    export(model, path)
    with chromium(tmp_path / "profile") as page:
        page.open(path)
        lines = page.value(f"({SCRIPT})(document.querySelector('#prediction'))")
        cells = page.value("[...document.querySelectorAll('input, select')].map(one => one.value)")
        page.value("new Promise(done => { reasons.addEventListener('toggle', () => done());"
                   "reasons.open = true; })")  # fmt: skip
        told = page.value("[...reasons.querySelectorAll('tr')].map(one => one.innerText)")
    table = {name: [cell] for name, cell in zip(model.columns, cells, strict=True)}
    known = {row.split("\t")[0].strip(): re.findall(r"-?[\d.]+", row) for row in told}
    found = model.explain_row(table)
    best = int(found.prediction.argmax())
    assert float(known["this row"][0]) == pytest.approx(100 * found.prediction[best], abs=0.06)
    for k, name in enumerate(found.columns):  # other orders than ours
        value, error = map(float, known[name][-2:])
        gap = value - 100 * found.contributions[k, best]
        assert abs(gap) < 4 * np.hypot(error, 100 * found.errors[k, best]) + 0.1
    total = sum(float(known[name][-2]) for name in found.columns)
    whole = total + float(known["mean over usual rows"][0])
    assert whole == pytest.approx(float(known["this row"][0]), abs=0.5)
    (inside,) = model.predict_set(table, 0.9)
    chances = model.predict_proba(table)[0]
    ordered = [model.classes[k] for k in np.argsort(-chances) if inside[k]]
    assert lines[0] == model.predict(table)[0]
    told = "For 9 of 10 such rows the class is in this set: " if ordered else "An unusual row: 9 of"
    assert lines[1].startswith(told + ", ".join(ordered))


def test_the_page_refuses_everything_but_its_own_script(flats):
    text = FORMATS["html"](flats)[0].decode()
    assert re.search(r"default-src &#x27;none&#x27;; script-src &#x27;sha256-[\w+/]+=", text)
    assert "unsafe" not in text
    assert "\r" not in text
    values = map(html.unescape, re.findall(r'<option value="([^"]*)"', text))
    assert [*values][:3] == ["</script>", "n\u00a0e\r\u200d\tw", "old"]
    assert text.count("<script") == text.count("</script>") == 1
