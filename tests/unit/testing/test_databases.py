"""The URL of a test's database, for libpq and for drivers that read no key-value strings."""

import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict

from relay.testing.databases import url_of

CONNINFOS = [
    "postgresql://u:p%40s@h:5433/d",
    "user=a password='b c/@:?#%' host=/var/run/postgresql dbname=x port=5433",
    "host=::1 dbname=y user=u",
    "host=a,b port=1,2 dbname=d options='-c x=1'",
    "dbname=d",
    "password=x dbname=d host=h",
    "postgresql:///d?host=/tmp&sslmode=require",
    "host=h dbname='a b/c?d'",
]


@pytest.mark.parametrize("conninfo", CONNINFOS)
def test_nothing_is_lost_on_the_way(conninfo: str) -> None:
    """Whatever form the server's own was given in, and wherever the server is."""
    parts = conninfo_to_dict(conninfo)
    assert conninfo_to_dict(url_of(parts)) == parts


def test_other_drivers_read_it() -> None:
    """What stands for the key-value form, which they do not know."""
    url = sqlalchemy.make_url(url_of(conninfo_to_dict("user=a password='b c/@' host=127.0.0.1 port=5433 dbname=x")))
    assert (url.username, url.password, url.host, url.port, url.database) == ("a", "b c/@", "127.0.0.1", 5433, "x")
