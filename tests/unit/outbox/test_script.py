"""What the printed steps are made of."""

import subprocess
import sys

import pytest

from relay.errors import ConfigurationError
from relay.outbox import ladder, script
from tests.support.commands import ROOT

NEWEST = ladder.newest()


@pytest.mark.parametrize("way", [script.up, script.down, script.one_up])
@pytest.mark.parametrize("name", ["", "a\0b", None, 7])
def test_a_name_that_no_schema_has_is_refused(way: object, name: object) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match="is no name of a schema"):
        way(name, 1)  # type: ignore[operator]


@pytest.mark.parametrize("target", [-1, NEWEST + 1, True, "1", 1.0, None])
def test_a_version_that_is_none_is_refused(target: object) -> None:
    """A revision of a user's has what the user wrote."""
    for way in (script.up, script.down):
        with pytest.raises(ConfigurationError, match=f"there is no schema version {target!r}; this code knows 0 to"):
            way("public", target)  # type: ignore[arg-type]


def test_a_way_that_leads_nowhere_is_refused() -> None:
    """It would look like success."""
    with pytest.raises(ConfigurationError, match=f"no step up to schema version 0; name one from 1 to {NEWEST}"):
        script.up("public", 0)
    with pytest.raises(ConfigurationError, match=f"no step down to schema version {NEWEST}; name one from 0 to"):
        script.down("public", NEWEST)
    with pytest.raises(ConfigurationError, match="no step from schema version 2 to 2"):
        script.between("public", 2, 2)


def test_what_no_database_said_is_no_complaint() -> None:
    """A connection that was lost is for the driver to tell."""
    assert script.complaint(None) is None
    assert script.complaint(OSError("away")) is None


def test_no_driver_is_imported_for_it() -> None:
    """A project that has psycopg2 may lack what psycopg needs."""
    program = "import sys; sys.modules['psycopg'] = None; import relay.alembic; from relay.outbox import script"
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True, timeout=60)
