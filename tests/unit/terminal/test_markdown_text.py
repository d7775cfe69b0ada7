"""Foreign text in Markdown: mentions no user, makes no link, and does not leave its cell."""

import pytest

from comparative_benchmark.terminal.screen import escaped, row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@everyone", "@\u200beveryone"),
        ("see #1", "see #\u200b1"),
        ("[x](javascript:alert(1))", "\\[x\\](javascript:alert(1))"),
        ("`code`", "\\`code\\`"),
        ("a | b", "a \\| b"),
        ("<b> & c", "&lt;b&gt; &amp; c"),
        ("*bold* _so_ ~~out~~", "\\*bold\\* \\_so\\_ \\~\\~out\\~\\~"),
        ("jax_xla:xla@old", "jax_xla:xla@old"),
        ("o/r#1 (@me)", "o/r#\u200b1 (@\u200bme)"),
        ("two\nlines\t and  blanks", "two lines and blanks"),
        ("\\| bar", "\\\\\\| bar"),
    ],
)
def test_text_stays_text(text, expected):
    assert escaped(text) == expected


def test_a_row_has_its_cells_and_no_more():
    assert row(["a|b", "c\nd"]) == "| a\\|b | c d |"
