"""Ways between the schema's versions as SQL for other tools: one statement each, all of it or nothing.

The database itself is asked which version it has, under the lock of every migration. So a script means the same whether
a tool runs it at once or prints it, in a transaction of the tool's or in none; what it sets is put back at its end.
Hand it to a driver without parameters: it contains `%` and `:name`.
"""

from collections.abc import Iterable

from relay.errors import ConfigurationError
from relay.outbox.ladder import LOCK_TIMEOUT, MIGRATION_LOCK, MIGRATION_TIMEOUT, VERSION_TABLE, Direction, Step
from relay.outbox.ladder import newest as newest_version
from relay.outbox.ladder import steps as steps_between

# With the schema on the search_path, a function there may fit better than a variadic one that is not written out.
_FRAME = """\
do {tag}
declare
    at_version integer := 0;
    their_path constant text := pg_catalog.current_setting('search_path');
    their_timeout constant text := pg_catalog.current_setting('lock_timeout');
begin
    perform pg_catalog.set_config('search_path', {path}, true);
    if to_regnamespace({schema}) is null then
        raise exception using
            errcode = 'invalid_schema_name',
            message = pg_catalog.format('database %I has no schema %s', current_database(), {schema}),
            hint = 'Create it first, or name another one.';
    end if;
    perform set_config('lock_timeout', '{patience}', true);
    perform pg_advisory_xact_lock({lock});
    perform set_config('lock_timeout', '{timeout}', true);
    -- Not by to_regclass, which may answer from before the wait for the lock.
    if exists (select from pg_tables where schemaname = {name} and tablename = 'outbox_migrations') then
        select coalesce(max(version), 0) into at_version from outbox_migrations;
    end if;
{body}
    perform set_config('lock_timeout', their_timeout, true);
    perform set_config('search_path', their_path, true);
exception
    when lock_not_available then
        raise exception using
            errcode = 'lock_not_available',
            message = pg_catalog.format(
                'another transaction holds what the migration of schema %s needs, and did not end in time; '
                'nothing was changed', {schema}),
            hint = 'Find it in pg_stat_activity by its xact_start, let it end, and try again.';
    when insufficient_privilege then
        raise exception using
            errcode = 'insufficient_privilege',
            message = pg_catalog.format('role %I may not change schema %s: %s', current_user, {schema}, sqlerrm),
            hint = 'Grant it create on the schema, or migrate as the owner of the outbox.';
end
{tag};
"""

_REFUSAL = """\
    if {condition} then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = pg_catalog.format(
                'the outbox in schema %s is at version %s, {but}; nothing was changed', {schema}, at_version),
            hint = '{hint}';
    end if;
"""

# A snapshot that is older than the locks does not show what was committed while they were waited for.
_REFUSAL_OF_OLD_SNAPSHOTS = """\
    if at_version > {target} and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = pg_catalog.format(
                'the outbox in schema %s takes no step back in a %s transaction: events that were stored meanwhile '
                'would not be seen; nothing was changed', {schema}, current_setting('transaction_isolation')),
            hint = 'Migrate in a transaction of the isolation level read committed.';
    end if;
"""

_STEP = """\
    -- {step}
    if at_version {condition} then
        execute {tag}
{statements}
{tag};
        {bookkeeping}
    end if;
"""


def between(schema: str, current: int, target: int) -> str:
    """The way from exactly one version to another: it refuses a database that has any other."""
    way = steps_between(current, target)
    if not way:
        raise ConfigurationError(f"there is no step from schema version {current} to {target}")
    refusal = _refusal(
        schema,
        f"at_version <> {current}",
        but=f"this script goes from {current} to {target}",
        hint="Print it for the version that is there: python -m relay migrate --sql --from VERSION",
    )
    header = (
        f"-- outbox-relay: from schema version {current} to {target}, in one statement. Run it with:\n"
        "-- psql --set ON_ERROR_STOP=1 --file outbox.sql\n\n"
    )
    return header + _statement(schema, way, refusal, target)


def up(schema: str, target: int) -> str:
    """The way to a version from any before it; nothing where the database has it, or a later one."""
    way = steps_between(0, target)
    if not way:
        raise ConfigurationError(
            f"there is no step up to schema version {target}; name one from 1 to {newest_version()}"
        )
    return _statement(schema, way, "", target)


def one_up(schema: str, target: int) -> str:
    """The one step to a version from that before it; nothing where the database has it, or a later one."""
    way = steps_between(target - 1, target)
    refusal = _refusal(
        schema,
        f"at_version < {target - 1}",
        but=f"this step needs {target - 1}",
        hint=f"Bring it there with: python -m relay migrate --to {target - 1}",
    )
    return _statement(schema, way, refusal, target)


def down(schema: str, target: int) -> str:
    """The way back to a version from any after it that this code knows; nothing where the database is not after it."""
    way = steps_between(newest_version(), target)
    if not way:
        raise ConfigurationError(
            f"there is no step down to schema version {target}; name one from 0 to {newest_version() - 1}"
        )
    refusal = _refusal(
        schema,
        f"at_version > {newest_version()}",
        but=f"newer than the {newest_version()} of this code",
        hint="Step back with the release that migrated it, or a later one.",
    )
    return _statement(schema, way, refusal, target)


def version_table(schema: str) -> str:
    """The qualified name of the table that records which steps were taken."""
    return f"{_identifier(schema)}.outbox_migrations"


def complaint(error: BaseException | None) -> str | None:
    """What the database said of a script, of any driver's error; None where it was not the database that spoke."""
    said = getattr(error, "diag", error)
    primary = getattr(said, "message_primary", None) or getattr(said, "message", None)
    if not isinstance(primary, str) or not (getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)):
        return None
    hint = getattr(said, "message_hint", None) or getattr(said, "hint", None)
    return f"{primary}. {hint}" if hint else primary


def _statement(schema: str, way: Iterable[Step], refusal: str, target: int) -> str:
    steps, quoted = list(way), _identifier(schema)
    body = refusal
    if steps[0].direction is Direction.DOWN:
        body += _REFUSAL_OF_OLD_SNAPSHOTS.format(target=target, schema=_literal(quoted))
    elif steps[0].migration.version == 1:
        body += f"    if at_version = 0 then\n{VERSION_TABLE}\n    end if;\n"
    body += "".join(map(_step, steps))
    return _FRAME.format(
        tag=_tag("outbox", body, schema),
        path=_literal(f"{quoted}, pg_temp"),
        schema=_literal(quoted),
        name=_literal(schema),
        lock=", ".join(map(str, MIGRATION_LOCK)),
        patience=MIGRATION_TIMEOUT,
        timeout=LOCK_TIMEOUT,
        body=body,
    )


def _step(step: Step) -> str:
    match step.direction:
        case Direction.UP:
            condition = f"< {step.migration.version}"
        case Direction.DOWN:
            condition = f">= {step.migration.version}"
    return _STEP.format(
        step=step,
        condition=condition,
        tag=_tag("step", step.statements),
        statements=step.statements.strip(),
        bookkeeping=step.bookkeeping,
    )


def _refusal(schema: str, condition: str, *, but: str, hint: str) -> str:
    return _REFUSAL.format(condition=condition, but=but, hint=hint, schema=_literal(_identifier(schema)))


def _tag(name: str, *texts: str) -> str:
    """A dollar quote that ends nowhere in the texts."""
    while any(f"${name}" in text for text in texts):
        name += "_"
    return f"${name}$"


def _identifier(name: object) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        raise ConfigurationError(f"{name!r} is no name of a schema")
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in quoted else quoted
