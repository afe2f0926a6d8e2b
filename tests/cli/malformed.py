"""Malformed inputs: what is wrong, which command meets it, and what the message must say."""

ROWS = [f"{i},{i * i % 7},{'uvw'[i % 3]},{'yn'[i % 2]}" for i in range(40)]
HEAD = "a,b,c,y\n"
GOOD = HEAD + "\n".join(ROWS) + "\n"
CONFIG = "data: {source: rows.csv, target: y}\ntraining: {epochs: 1}\nreport: false\n"


def changed(row: int, text: str) -> str:
    """Return the good table with one row replaced."""
    return HEAD + "\n".join(text if i == row else line for i, line in enumerate(ROWS)) + "\n"


CONFIGS = {
    "decimal comma in a text": (CONFIG + "optimizer: {lr: '0,1'}\n", "write 0.1, with a point"),
    "digits of another script": (CONFIG + "seed: '\u0665'\n", "whole number (got '\u0665')\n"),
    "delimiter of another file": (
        CONFIG.replace("target", "delimiter: ';', target"),
        "its header is one cell, 'a,b,c,y': set data.delimiter: ','",
    ),
    "huge hexadecimal number": (
        CONFIG + "seed: 0x" + "f" * 6000 + "\n",
        "a number that can be used",
    ),
}
"""Text of c.yaml, and what `train` says; `tests/config` has what loading a config refuses."""

TABLES = {
    "ragged": (changed(3, "1,2"), "line 5: 4 cells are needed, as in the header (2 found); add "),
    "infinite feature": (changed(3, "inf,2,u,y"), "line 5"),
    "only a target": ("y\n" + "y\nn\n" * 20, "no feature column is left"),
}
"""Text of rows.csv, and what `train` says."""

COMMANDS = {
    "evaluate a directory with runs below it": (["evaluate", "project"], "write project/runs/ok"),
    "predict with a CSV as model": (["predict", "rows.csv", "run"], "commands take the run first"),
    "a metric of another name": (["evaluate", "run", "--metric", "acuracy"], "has loss, accuracy"),
    "a share in percent": (["predict", "run", "rows.csv", "--threshold", "30%"], "write 0.3"),
    "a share above 1": (["predict", "run", "rows.csv", "--threshold", "1.5"], "(got '1.5')\n"),
    "a run in the place of a file": (["train", "c.yaml", "-q", "-o", "/dev/null"], "/dev/null: "),
    "runs in a file": (["ls", "rows.csv"], "is a file"),
    "intervals of classes": (["predict", "run", "rows.csv", "--interval", "0.9"], "or --set, for"),
    "predict without a column": (["predict", "run", "less.csv"], "needs column"),
    "predict into an unknown format": (["predict", "run", "rows.csv", "-o", "o.xls"], ".parquet"),
    "predict over it": (["predict", "run", "rows.csv", "-o", "rows.csv"], "the table to predict"),
    "distill a model alone": (["distill", "bare.safetensors"], "the directory of a run is needed"),
    "diagnose a model alone": (["diagnose", "bare.safetensors"], "of a run (got a file)\n"),
    "export over a table": (["export", "run", "--format", "c", "-o", "rows.csv"], "end in .c;"),
    "init over the table": (
        ["init", "rows.csv", "--target", "y", "-o", "rows.csv", "--force"],
        "rows.csv: exists and does not end in .yaml; name another file",
    ),
    "a model with a flipped bit": (["predict", "bit.safetensors", "rows.csv"], "is damaged"),
    "a network without preprocessing": (["predict", "net.safetensors", "rows.csv"], "not a model"),
    "evaluate an unknown class": (["evaluate", "run", "class.csv"], "- did you mean 'y'?"),
    "evaluate without a target": (["evaluate", "run", "target.csv"], "target column"),
    "evaluate nothing": (["evaluate", "bare.safetensors"], "evaluate bare.safetensors FILE"),
    "init without a target": (["init", "rows.csv", "-o", "n.yaml"], "the columns are a, b, c"),
    "compare with a deep result": (["compare", "deep", "run"], "deep/result.json: cannot be read"),
    "check a name with a comma": (["check", "comma.yaml"], "did you mean 'rows.csv'?"),
}
"""Arguments in a directory that holds a run, and what the command says."""


def prepare(folder, model):
    """Write the files that `COMMANDS` name; `model` is a model file of a run on the good table."""
    (folder / "rows.csv").write_text(GOOD)
    (folder / "c.yaml").write_text(CONFIG)
    (folder / "comma.yaml").write_text(CONFIG.replace("rows.csv", "'rows.csv,'"))
    (folder / "less.csv").write_text("a,b\n1,2\n")
    (folder / "class.csv").write_text(HEAD + "1,2,u,Y\n")
    (folder / "target.csv").write_text("a,b,c\n1,2,u\n")
    (folder / "deep").mkdir()
    (folder / "project" / "runs" / "ok").mkdir(parents=True)
    (folder / "project" / "runs" / "ok" / "config.resolved.yaml").touch()
    (folder / "deep" / "result.json").write_text("[" * 100_000)
    data = model.read_bytes()
    (folder / "bare.safetensors").write_bytes(data)
    (folder / "bit.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 4]))
