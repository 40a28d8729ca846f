"""The snippets of docs/emit.md, run the way they stand there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.dev.stack import Stack
from relay.testing.databases import fresh_database
from tests.support.commands import ROOT
from tests.support.emitters import plain_url

pytestmark = pytest.mark.slow("runs each snippet of a page")

PAGE = (ROOT / "docs/emit.md").read_text(encoding="utf-8")
SNIPPETS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PG = "8.23.1"  # of Node's package pg

# What the page leaves to the reader, and what calls a snippet that only defines something.
ASK_THE_APP = """
import asyncio, httpx
async def ask():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        answered = await client.post("/orders?amount=1999")
    await engine.dispose()
    assert answered.status_code == 200, answered.text
asyncio.run(ask())
"""
DJANGO = """
import io, os, sys, types, unittest
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
parts = conninfo_to_dict(os.environ["DATABASE_URL"])
names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
database = {name: parts.get(part, "") for name, part in names.items()}
database["ENGINE"] = "django.db.backends.postgresql"
database["TEST"] = {"NAME": parts["dbname"] + "_django", "TEMPLATE": os.environ.get("TEMPLATE")}
database["ATOMIC_REQUESTS"] = True
settings.configure(
    DATABASES={"default": database}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", ROOT_URLCONF="shop.urls",
    ALLOWED_HOSTS=["testserver"],
)
django.setup()
from django.db import models
class Order(models.Model):
    amount = models.IntegerField()
    class Meta:
        app_label, db_table, managed = "shop", "orders", False
shop, shop_models, payments = (types.ModuleType(name) for name in ("shop", "shop.models", "shop.payments"))
shop_models.Order = Order
sys.modules |= {"shop": shop, "shop.models": shop_models, "shop.payments": payments}
"""
PAY = "pay(1999)\n"
PAY_AWAITED = """
import asyncio
from asgiref.sync import sync_to_async
async def view():
    await sync_to_async(pay)(1999)
    await sync_to_async(lambda: connection.close())()
asyncio.run(view())
"""
PAY_IN_VIEWS = """
from django.http import HttpResponse
from django.test import Client
from django.urls import path
def view(request, outcome):
    paid = Order.objects.create(amount=1999)
    emit(connection, Event(event_type="order.paid", aggregate_type="a", aggregate_id=str(paid.pk), data=1999))
    if outcome == "fails":
        raise LookupError
    return HttpResponse()
sys.modules["shop.urls"] = types.ModuleType("shop.urls")
sys.modules["shop.urls"].urlpatterns = [path("<outcome>", view)]
client = Client(raise_request_exception=False)
import logging
logging.disable()
assert [client.get(path).status_code for path in ("/fails", "/works")] == [500, 200]
"""
CLOSE = "engine.dispose()\n"
TEST = """
from django.test.runner import DiscoverRunner
runner = DiscoverRunner(verbosity=0, interactive=False)
runner.setup_test_environment()
databases = runner.setup_databases()
result = unittest.TextTestRunner(stream=io.StringIO()).run(
    unittest.defaultTestLoader.loadTestsFromTestCase(PayTest)
)
runner.teardown_databases(databases)
assert (result.testsRun, result.wasSuccessful()) == (1, True), result
"""


def python(containing: str) -> str:
    """The one Python snippet that has these words."""
    (found,) = [text for language, text in SNIPPETS if language == "python" and containing in text]
    return found


def as_payments(text: str) -> str:
    """A snippet as the module shop.payments."""
    return f"exec({text!r}, payments.__dict__)\n"


PROGRAMS = {
    "psycopg": python("psycopg.connect"),
    "psycopg2": python("psycopg2.connect"),
    "asyncpg": python("asyncpg.create_pool"),
    "sqlalchemy": python("DeclarativeBase") + CLOSE,
    "fastapi": python("FastAPI") + ASK_THE_APP,
    "django": DJANGO + python("Order.objects") + PAY,
    "django-awaited": DJANGO + python("Order.objects") + PAY_AWAITED,
    "django-atomic-requests": DJANGO + python("Order.objects") + PAY_IN_VIEWS,
    "retries": python("attempts - 1") + CLOSE,
}


@pytest.fixture
def orders(stack: Stack, template: str) -> Iterator[str]:
    """The URL of a database with an outbox and the table of the page."""
    (table,) = [text for language, text in SNIPPETS if language == "sql"]
    with fresh_database(stack.database_url, template) as url:
        with psycopg.connect(url) as connection:
            connection.execute(table.encode())
        yield plain_url(url)


def run(words: Sequence[str], url: str, folder: Path, **variables: str) -> None:
    """Run a program of the page, which prints nothing."""
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DATABASE_URL": url, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def emitted(url: str) -> list[tuple[str, str, bool]]:
    """The events that are stored, and whether each has its order beside it."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "select event_type, coalesce(payload #>> '{data, amount}', payload ->> 'data'),"
            "       exists (select from orders where id::text = aggregate_id and amount = 1999)"
            "  from outbox_events"
        ).fetchall()


def test_there_is_a_test_for_each_snippet() -> None:
    """A snippet that nobody runs is a snippet that is wrong one day; those of Go and Ruby need their languages."""
    languages = [language for language, _ in SNIPPETS]
    assert languages == ["sql", *["python"] * 8, "js", "go", "ruby"]


@pytest.mark.parametrize(
    "name", re.findall(r"`((?:psycopg2?|asyncpg|sqlalchemy|django)\.[\w.]*Error|psycopg2?\.errors\.\w+)`", PAGE)
)
def test_an_error_of_the_page_is_there(name: str) -> None:
    """By the name that it has there."""
    assert issubclass(resolve_name(name), Exception)


@pytest.mark.parametrize("library", PROGRAMS)
def test_a_snippet_stores_an_order_and_its_event(orders: str, tmp_path: Path, library: str) -> None:
    """Without a warning."""
    run([sys.executable, "-W", "error", "-c", PROGRAMS[library]], orders, tmp_path)
    assert emitted(orders) == [("order.paid", "1999", True)]


def test_a_test_case_of_django_sees_the_event(orders: str, tmp_path: Path) -> None:
    """In a test database that was made from one with an outbox."""
    with psycopg.connect(orders) as connection:
        connection.execute("truncate outbox_events")
    program = DJANGO + as_payments(python("Order.objects")) + python("TestCase") + TEST
    template = str(conninfo_to_dict(orders)["dbname"])
    run([sys.executable, "-W", "error", "-c", program], orders, tmp_path, TEMPLATE=template)
    assert emitted(orders) == []


def test_the_snippet_of_node_does_the_same(orders: str, tmp_path: Path) -> None:
    """With its package pg, from the registry."""
    if shutil.which("node") is None or (npm := shutil.which("npm")) is None:
        pytest.skip("node and npm are not there")
    options = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=15000"]
    installed = subprocess.run(
        [npm, "install", *options, f"pg@{PG}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install pg: {installed.stderr[-200:]}")
    (text,) = [text for language, text in SNIPPETS if language == "js"]
    (tmp_path / "pay.mjs").write_text(text, encoding="utf-8")
    run(["node", "pay.mjs"], orders, tmp_path)
    assert emitted(orders) == [("order.paid", "1999", True)]
