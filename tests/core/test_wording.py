"""Parts of messages: numbers with nouns, similar names, foreign text."""

import pytest

from mlpengine.core.redaction import redacted
from mlpengine.core.wording import printable

CONTROLS = ["a\x1b[31m", "a\nb", "\x9b2J", "\u202eabc", "\x7f", "caf\xe9 \u4e2d"]


@pytest.mark.parametrize("text", CONTROLS)
def test_control_characters_are_escaped_as_repr_writes_them(text):
    assert printable(text) == repr(text)[1:-1]


def test_what_is_no_password_stays():
    for text in (
        "postgresql://u@host:5432/name?host=/a&port=1",
        "postgresql://u@[::1]:5432/name: cannot be used",
        "sqlite:////tmp/s.db",
        "see http://localhost:8080/a, (https://b.org:80): user@c.org",
        "column a:b, c://d",
    ):
        assert redacted(text) == text
    message = "postgresql://u@/name?password={}: the storage cannot be used"
    assert redacted(message.format("pa55-w0rd")) == message.format("***")


def test_bytes_of_a_path_that_are_no_characters_stay():
    assert printable("run\udcff\n") == "run\udcff\\n"
