"""What to run where an optional part is missing."""

from pathlib import Path

import pytest

from relay import extras


def test_a_checkout_names_itself() -> None:
    """The command works as it stands."""
    assert extras.installed_by("dev") == f"pip install '.[dev]' in {Path(extras.__file__).parents[1]}"


def test_what_was_installed_elsewhere_names_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, no checkout is known of."""
    monkeypatch.setattr(extras, "__file__", "/usr/lib/python3/site-packages/relay/extras.py")
    assert extras.installed_by("relay") == "pip install '.[relay]' in a checkout of outbox-relay"
