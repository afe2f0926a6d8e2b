"""Parts of messages: numbers with nouns, similar names, foreign text."""

import numpy as np

from mlpengine.core.redaction import redacted
from mlpengine.core.wording import (
    columns_of,
    cut,
    cut_apart,
    left,
    metric_text,
    printable,
    quoted,
    shown_name,
)


def test_control_characters_are_escaped_as_repr_writes_them():
    for text in ("a\x1b[31m", "a\nb", "\x9b2J", "\u202eabc", "\x7f", "caf\xe9 \u4e2d"):
        assert printable(text) == repr(text)[1:-1]
    assert printable("run\udcff\n") == "run\udcff\\n"  # a byte of a path, no character


def test_names_of_classes_stay_apart_and_unchanged():
    names = ["aaaa_with_a_name_1_aaaa", "aaaa_with_a_name_2_aaaa", "b"]
    assert cut_apart(names, 12) == ["aaaa_wit...1", "aaaa_wit...2", "b"]
    assert shown_name("log_loss of a_b") == "log loss of a_b"


def test_long_texts_are_cut_within_their_quotes_or_brackets():
    for value in ("a" * 99, b"a" * 99, [*range(99)], (1,) * 99, {k: k for k in range(99)}):
        text = quoted(value)
        assert (text[:9], text[-4:]) == (repr(value)[:9], f"...{repr(value)[-1]}")
        assert len(text) == len(cut(repr(value))) == 60
    assert [columns_of(text) for text in ("abc", "\u6771\u4eac", "e\u0301")] == [3, 4, 1]
    assert left("\u6771\u4eac", 6) == "\u6771\u4eac  "
    assert [*map(metric_text, (0.0, 8e-10, 6e-5))] == ["0.0000", "8.00e-10", "0.0001"]
    assert quoted(np.float32(0.5)) == "0.5"
    assert quoted(np.zeros((2, 3))) == "ndarray float64[2, 3]"


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
