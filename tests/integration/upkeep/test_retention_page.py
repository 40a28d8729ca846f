"""The example of docs/retention.md does what the page says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from relay.operate.retention import INTERVAL
from relay.outbox.grants import Role
from relay.postgres.connect import connect_async
from relay.upkeep.mover import PAUSES
from relay.upkeep.position import PAGES_A_NOTE
from relay.upkeep.run import Run, Surroundings
from tests.support.commands import ROOT
from tests.support.moving import asked, do
from tests.support.roles_of_tests import ROLES

PAGE = (ROOT / "docs" / "retention.md").read_text(encoding="utf-8")
TABLES = """
    create table sources (id bigint primary key, state text, created_at timestamptz, seen_at timestamptz);
    create table source_lines (id bigint primary key, source_id bigint references sources,
                               made_at timestamptz not null);
    create index on source_lines (source_id);
    insert into sources values (1, 'done', '2024-01-31', '2024-01-31'), (2, 'disputed', '2024-01-31', '2024-01-31'),
                               (3, 'done', now(), now());
    insert into source_lines select id, id, created_at from sources
"""


async def test_the_job_of_the_page_moves_what_it_says(database: str) -> None:
    """With the children, and counted."""
    do(database, TABLES)
    code = PAGE.partition("```python\n")[2].partition("```")[0]
    named: dict[str, Any] = {}
    exec(compile(code, "retention.md", "exec"), named)  # noqa: S102 -- the page is ours
    (job,) = named["jobs"]
    around = Surroundings(connect=lambda: connect_async(database), schema="public", observe=lambda _: None)
    run = Run(job=job.name, slot=datetime.now(UTC), worker="test", around=around, stopping=asyncio.Event())
    await job.work(run)

    assert dict(run.counters) == {"moved:public.sources": 1}
    assert asked(database, "select id from sources order by id") == [2, 3]
    assert asked(database, "select count(*) from archive.sources_2024_01") == [1]
    assert asked(database, "select count(*) from archive.source_lines_2024_01") == [1]
    do(database, "drop schema archive cascade")
    for statement in PAGE.split("```sql\n")[1:]:
        do(database, statement.partition("```")[0].replace("outbox_relay", ROLES.name(Role.RELAY)))


def test_autovacuum_comes_as_the_page_says(database: str) -> None:
    """When a twentieth of the outbox is dead; the migration has seen to that."""
    (options,) = asked(database, "select reloptions from pg_class where oid = 'outbox_events'::regclass")
    assert "autovacuum_vacuum_scale_factor=0.05" in options
    assert "to `outbox_events` when a twentieth of it is dead" in PAGE


def test_the_page_has_the_times_of_the_code() -> None:
    """How often events are looked for, what is rested, and how often a place is noted."""
    assert (4, 20, timedelta(minutes=10)) == (PAUSES, PAGES_A_NOTE, INTERVAL)
    assert "Every ten minutes one relay moves" in PAGE
    assert "rests four times as long" in PAGE
    assert "noted every twenty pages" in PAGE
