"""Spares the garbage collector what stays to the end of a run: modules and collected tests, some million objects."""

import gc
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect nothing while the tests are gathered: hardly anything of that goes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what is there now out of every later collection."""
    gc.collect()
    gc.freeze()
