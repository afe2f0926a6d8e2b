"""Passwords of databases: in no message, and in no file that another user may read."""

import json
import os
import sys
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from small import SMALL

from mlpengine.core.redaction import redacted, with_values, without_values
from mlpengine_cli import study
from mlpengine_cli import sweep as sweep_module

PASSWORD = "pa55-w0rd"
SPELLINGS = {
    "before the host": f"postgresql://u:{PASSWORD}@/name?host=/nowhere",
    "an option": f"postgresql://u@/name?host=/nowhere&password={PASSWORD}",
    "of a key": f"postgresql://u@/name?sslpassword={PASSWORD}&host=/nowhere",
    "without a host": f"postgresql://bob:{PASSWORD}",
    "beside a port": f"postgresql://u:{PASSWORD}@host:port/name",
    "with an @": f"postgresql://u:a@{PASSWORD}@127.0.0.1/name",
    "no URL": f"host=/nowhere user=u password={PASSWORD}",
}
SPACE = "{trials: 1, sampler: random, space: {optimizer.lr: {choice: [0.01, 0.02]}}"
HOLD_ONE = {"sweep.json", "sweep.yaml", "config.yaml"}
"""Files that hold settings as they were given."""


@pytest.fixture
def called(mlpengine, monkeypatch):
    """Call a command as from a shell; no message of it may show the password."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["mlpengine", *arguments])
        ran = mlpengine(*arguments)
        assert PASSWORD not in ran.out + ran.err
        assert "Traceback" not in ran.err
        return ran

    return call


def holders():
    """Return the files below this directory that hold the password, and others may read."""
    paths = [path for path in Path().rglob("*") if path.is_file()]
    holding = [path for path in paths if PASSWORD.encode() in path.read_bytes()]
    return holding, [path for path in holding if path.stat().st_mode & 0o077]


PLACES = ("in the config", "on the command line")


@pytest.mark.parametrize(
    ("name", "place"),
    [("before the host", PLACES[0]), ("an option", PLACES[1])],
)
def test_no_file_of_a_sweep_shows_the_password(name, place, called, tmp_path, monkeypatch):
    url, database = SPELLINGS[name], f"sqlite:///{tmp_path / 's.db'}"
    monkeypatch.setattr(study, "_database", lambda _: RDBStorage(database))
    monkeypatch.setattr(sweep_module, "cores", lambda: 1)
    before = os.umask(0o022)
    try:
        config, given = f"{SMALL}sweep: {SPACE}}}\n", ("--set", f"sweep.storage={url}")
        if place == "in the config":
            config, given = f"{SMALL}sweep: {SPACE}, storage: {json.dumps(url)}}}\n", ()
        Path("s.yaml").write_text(config)
        Path("s.yaml").chmod(0o600)
        assert called("sweep", "s.yaml", "-o", "swept", *given).code == 0
        assert called("sweep", "--join", "swept", "--json").code == 0
        assert called("train", "s.yaml", "-o", "run", *given).code == 0
        for page in ("swept", "run"):
            assert called("report", page).code == 0
        assert called("report", "swept", "--json").code == 0
        assert called("compare", "run", "swept/trials/0000").code == 0
        assert called("check", "s.yaml", *given).code == 0
        assert called("diagnose", "run").code == 0
    finally:
        os.umask(before)
    holding, readable = holders()
    assert readable == []
    assert {path.name for path in holding} <= HOLD_ONE | {"s.yaml"}
    assert Path("swept/sweep.json" if given else "swept/sweep.yaml") in holding
    command = json.loads(Path("swept/trials/0000/environment.json").read_text())["command"]
    assert any("storage=postgresql://" in word for word in command) == bool(given)


@pytest.mark.parametrize("url", SPELLINGS.values(), ids=SPELLINGS)
def test_no_message_shows_the_password(url, called):
    Path("s.yaml").write_text(f"{SMALL}sweep: {SPACE}}}\n")
    for arguments in (
        ("s.yaml", "--set", f"sweep.storage={url}"),
        ("s.yaml", "--set", f"sweep.storag={url}"),
        ("s.yaml", "--set", f"sweep.storage:{url}"),
        ("s.yaml", "--set", f"sweep.storage=[{url}"),
        ("s.yaml", f"--storage={url}"),
        ("s.yaml", url),
        (url,),
        ("--join", url),
    ):
        ran = called("sweep", *arguments)
        assert ran.code in (1, 2)
        assert ran.err.startswith("error: ")
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_password_is_hidden_however_it_is_spelled():
    for text in SPELLINGS.values():
        assert redacted(redacted(text)) == redacted(text)
        assert PASSWORD not in redacted(f"(got {text}: no)")


IN_VARIABLES = {  # with the password 'pa55 w0rd@/', quoted where a URL quotes
    "postgresql://u:${DB_PW}@host:${DB_PORT}/name": "postgresql://u:pa55%20w0rd%40%2F@host:5432/name",
    "postgresql://u@/name?host=${DB_DIR}&password=${DB_PW}": (
        "postgresql://u@/name?host=%2Frun%2Fdb&password=pa55%20w0rd%40%2F"
    ),
    "sqlite:///${DB_DIR}/s.db": "sqlite:////run/db/s.db",
    "postgresql://u:$DB_PW@host/${0}": "postgresql://u:$DB_PW@host/${0}",
}


@pytest.mark.parametrize("url", IN_VARIABLES)
def test_variables_in_the_url_of_a_storage_are_those_of_the_environment(url, monkeypatch):
    for name, value in (("PW", "pa55 w0rd@/"), ("PORT", "5432"), ("DIR", "/run/db")):
        monkeypatch.setenv(f"DB_{name}", value)
    assert with_values(url) == IN_VARIABLES[url]
    if "${DB_" in url:
        assert redacted(url) == url
        assert redacted(IN_VARIABLES[url]) != IN_VARIABLES[url] or "sqlite" in url
    said = f"no such host as {IN_VARIABLES[url]} (pa55 w0rd@/)"
    assert "pa55" not in without_values(said, url) or "${DB_PW}" not in url


@pytest.mark.parametrize("place", PLACES)
def test_files_and_messages_keep_the_name_of_a_variable(place, called, monkeypatch):
    url, opened = "postgresql://u:${DB_PW}@/name?host=/nowhere", []

    class Elsewhere(RDBStorage):
        def __init__(self, url, **_):
            opened.append(url)
            if len(opened) == 2:
                raise ValueError(f"password {PASSWORD} is wrong")
            super().__init__("sqlite:///s.db")

    monkeypatch.setattr("optuna.storages.RDBStorage", Elsewhere)
    monkeypatch.setattr(sweep_module, "cores", lambda: 1)
    monkeypatch.setenv("DB_PW", PASSWORD)
    config, given = f"{SMALL}sweep: {SPACE}}}\n", ("--set", f"sweep.storage={url}")
    if place == "in the config":
        config, given = f"{SMALL}sweep: {SPACE}, storage: '{url}'}}\n", ()
    Path("s.yaml").write_text(config)
    refused = called("sweep", "s.yaml", "-o", "swept", *given)
    assert refused.code == 1
    shown = "postgresql://u:${DB_PW}@/name?host=/nowhere: the sweep's storage cannot be used"
    assert f"error: {shown} (password ${{DB_PW}} is wrong)" in refused.err
    assert opened[0].removeprefix("postgresql+psycopg") == f"://u:{PASSWORD}@/name?host=/nowhere"
    assert "${DB_PW}" in Path("swept/sweep.json" if given else "swept/sweep.yaml").read_text()
    assert called("sweep", "--join", "swept", "-q").code == 0
    assert called("train", "s.yaml", "-o", "run", "-q", *given).code == 0
    assert holders()[0] == []
    monkeypatch.delenv("DB_PW")
    line = ":5" if place == "in the config" else ""
    for arguments, source in (
        (("s.yaml", "-o", "other", *given), "s.yaml"),
        (("--join", "swept"), str(Path("swept/sweep.yaml").absolute())),
    ):
        ran = called("sweep", *arguments)
        where = source if place == "in the config" else "--set sweep.storage"
        assert (ran.code, ran.err) == (
            2,
            f"error: {where}{line}: sweep.storage: ${{DB_PW}} must be an environment variable "
            "(it is not set)\n",
        )
    assert not Path("other").exists()
