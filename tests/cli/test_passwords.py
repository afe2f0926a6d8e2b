"""Passwords in URLs: in no message."""

import sys
from pathlib import Path

import pytest
from small import SMALL

import mlpengine
from mlpengine.core.redaction import redacted

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


@pytest.mark.parametrize("url", SPELLINGS.values(), ids=SPELLINGS)
def test_no_message_shows_the_password(url, mlpengine, monkeypatch):
    Path("s.yaml").write_text(SMALL)
    for arguments in (
        ("s.yaml", "--set", f"data.source={url}"),
        ("s.yaml", "--set", f"data.sorce={url}"),
        ("s.yaml", "--set", f"data.source:{url}"),
        ("s.yaml", "--set", f"data.source=[{url}"),
        ("s.yaml", f"--source={url}"),
        ("s.yaml", url),
        (url,),
        ("--resume", url),
    ):
        monkeypatch.setattr(sys, "argv", ["mlpengine", "train", *arguments])
        ran = mlpengine("train", *arguments)
        assert ran.code in (1, 2)
        assert ran.err.startswith("error: ")
        assert PASSWORD not in ran.out + ran.err
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_password_is_hidden_however_it_is_spelled():
    for text in SPELLINGS.values():
        assert redacted(redacted(text)) == redacted(text)
        assert PASSWORD not in redacted(f"(got {text}: no)")


def test_errors_in_python_hide_passwords():
    with pytest.raises(mlpengine.MlpEngineError) as failure:
        mlpengine.fit(f"postgresql://u:{PASSWORD}@h/t.csv", target="y")
    assert "u:***@h" in str(failure.value)
    assert PASSWORD not in str(failure.value)
