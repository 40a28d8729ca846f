"""The suite's own plugins at work, over suites of a few lines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

MANY = """
import pytest
@pytest.mark.parametrize("number", range(40))
def test_many(number):
    pass
"""


def suite(folder: Path, *words: str, **modules: str) -> tuple[int, str]:
    """Run these modules side by side; how that ends, and what it says."""
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    names = [
        "xdist.plugin",
        *[f"tests.plugins.{name}" for name in ("order", "side_by_side", "durations", "garbage", "endless")],
    ]
    plugins = [word for name in names for word in ("-p", name)]
    marks = ["-o", "markers=slow: why\nalone: why", "-c", os.devnull, "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--dist=loadgroup", *plugins, *marks, *words, "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", [pytest.param(3, marks=pytest.mark.slow("another moment of the same")), 39])
def test_a_test_that_ends_its_process_fails_alone(tmp_path: Path, number: int) -> None:
    """Whatever else that process was to run, others run, and what measures time behind all of it."""
    ends = MANY + f"    import os; number == {number} and os._exit(1)\n"
    last = "import pytest\n@pytest.mark.alone('measures')\ndef test_last(): pass\n"
    code, said = suite(tmp_path, "-n", "2", ends=ends, many=MANY, last=last)
    assert code == 1
    assert re.search(r"1 failed, 80 passed", said), said
    assert f"crashed while running 'test_ends.py::test_many[{number}]" in said


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_mark_says_why(tmp_path: Path, processes: str) -> None:
    """Or nothing runs, whichever tests were asked for."""
    wrong = {
        name: f"import pytest\n@pytest.mark.{mark}\ndef test_wrong(): pass\n"
        for name, mark in {"no": "slow", "none": "alone()", "empty": "slow('')"}.items()
    }
    code, said = suite(tmp_path, "-n", processes, "-m", "not slow", "--continue-on-collection-errors", **wrong)
    assert code == 1, said
    for name, mark in ("no", "slow"), ("none", "alone"), ("empty", "slow"):
        assert f'test_{name}.py::test_wrong: write @pytest.mark.{mark}("why")' in said
    assert "INTERNALERROR" not in said


def test_a_failed_test_says_what_ran_before_it(tmp_path: Path) -> None:
    """In the same process, the latest last; with `--seed=0` and these names the same happens again."""
    code, said = suite(tmp_path, "-n", "0", "--seed=0", many=MANY, the_last="def test_fails(): assert 0\n")
    assert code == 1
    before = said.partition("Ran before it in this process")[2].splitlines()[1:21]
    assert before == [f"test_many.py::test_many[{number}]" for number in range(20, 40)]
    assert suite(tmp_path, "--seed=7")[1].count("order: --seed=7") == 1


def test_where_the_time_goes_is_told_by_folder_module_and_fixture(tmp_path: Path) -> None:
    """Of all processes, with what is torn down; a fixture without those that it asks for."""
    timed = """
import time, pytest
@pytest.fixture
def inner():
    time.sleep(0.1)
    yield
    time.sleep(0.3)
@pytest.fixture
def outer(inner): time.sleep(0.2)
def test_it(outer): time.sleep(0.1)
"""
    code, said = suite(tmp_path, "-n", "2", "--where-time-goes", timed=timed, many=MANY)
    assert code == 0
    told = {
        name: float(seconds) for seconds, name in re.findall(r"^ +([0-9.]+) +[0-9.]+ +\d+  (\S+)", said, re.MULTILINE)
    }
    assert told["."] >= told["test_timed.py"] >= 0.7
    assert told["inner"] >= 0.4 > told["outer"] >= 0.2


def test_what_a_failure_says_reaches_the_end(tmp_path: Path) -> None:
    """Also where it is no Unicode, as a name in the file system need not be; and all others run."""
    odd = 'def test_odd():\n    assert "\\udcff" == "ä", "\\udcff"\n'
    odd += 'def test_skipped():\n    import pytest\n    pytest.skip("odd: \\udcff")\n'
    code, said = suite(tmp_path, "-n", "2", odd=odd, many=MANY)
    assert code == 1
    assert "1 failed, 40 passed, 1 skipped" in said, said


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_hangs_behind_a_failure_ends_with_its_process(tmp_path: Path, processes: str) -> None:
    """It says where it hangs; with several processes, all others run."""
    hangs = """
import threading, pytest
@pytest.fixture
def deaf():
    yield
    threading.Event().wait()
def test_fails(deaf):
    assert 0
"""
    (tmp_path / "conftest.py").write_text("from tests.plugins import endless\nendless.SECONDS = 0.5\n")
    code, said = suite(tmp_path, "-n", processes, hangs=hangs, many=MANY)
    assert code == 1
    assert "in deaf" in said, said
    if processes == "2":
        assert "40 passed" in said
        assert "crashed while running 'test_hangs.py::test_fails'" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nosuch"], "nosuch: there is no such file or folder"),
        (["-o", "addopts="], "TEST_DATABASE_URL names one server, which several processes cannot share: leave out -n"),
    ],
    ids=["path", "server"],
)
def test_what_several_processes_cannot_do_is_refused(
    tmp_path: Path, words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words, and nothing runs."""
    if "TEST_" in sentence:
        monkeypatch.setenv("TEST_DATABASE_URL", "postgresql://")
    code, said = suite(tmp_path, "-n", "2", *words, many=MANY)
    assert code == 4
    assert sentence in said
    assert "passed" not in said
