"""What is said about an error."""

import asyncio

import pytest

from relay.kernel.failure import origin, sentence


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("too big"), "ValueError: too big"),
        (TimeoutError(), "TimeoutError"),
        (
            RuntimeError("new row violates check\nDETAIL:  Failing row contains (secret)."),
            "RuntimeError: new row violates check",
        ),
        (ExceptionGroup("g", [OSError("a"), ExceptionGroup("h", [KeyError("b")])]), "OSError: a; KeyError: 'b'"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_an_error_is_one_line(error: BaseException, text: str) -> None:
    """The kind and the first line: what follows may quote data. Of a group, its errors and not their number."""
    assert sentence(error) == text


def test_the_line_is_bounded() -> None:
    """A megabyte of error text is not logged."""
    assert len(sentence(ValueError("x" * 1_000_000))) == 1_024


def test_the_origin_names_modules_and_lines() -> None:
    """The innermost is last; a deep recursion is cut at its outer end."""

    def fall(depth: int) -> None:
        if not depth:
            raise ValueError
        fall(depth - 1)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- it says nothing on purpose
        fall(50)

    line = fall.__code__.co_firstlineno + 2
    assert origin(caught.value)[-1] == f"{__name__}:{line}"
    assert len(origin(caught.value)) == 8
    assert origin(ValueError()) == []
