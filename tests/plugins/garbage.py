"""Spares the garbage collector what stays to the end of a run: modules and collected tests, some million objects."""

import gc

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    """Collect nothing while the tests are gathered: hardly anything of that goes."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what is there now out of every later collection."""
    gc.collect()
    gc.freeze()
    gc.enable()
