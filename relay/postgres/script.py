"""Ways between the schema's versions as SQL for other tools: one statement each, all of it or nothing.

The database itself is asked which version it has, under the lock of every migration. So a script means the same whether
a tool runs it at once or prints it, in a transaction of the tool's or in none; what it sets is put back at its end.
Hand it to a driver without parameters: it contains `%` and `:name`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relay.errors import ConfigurationError
from relay.postgres.ladder import LOCK_TIMEOUT, MIGRATION_TIMEOUT, Direction, Ladder, Step

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
    if exists (select from pg_tables where schemaname = {name} and tablename = '{record}') then
        select coalesce(max(version), 0) into at_version from {record};
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
            hint = 'Grant it create on the schema, or migrate as the owner of the {made}.';
end
{tag};
"""

_REFUSAL = """\
    if {condition} then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = pg_catalog.format(
                'the {made} in schema %s is at version %s, {but}; nothing was changed', {schema}, at_version),
            hint = '{hint}';
    end if;
"""

# A snapshot that is older than the locks does not show what was committed while they were waited for.
_REFUSAL_OF_OLD_SNAPSHOTS = """\
    if at_version > {target} and current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = pg_catalog.format(
                'the {made} in schema %s takes no step back in a %s transaction: {stored} meanwhile '
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


@dataclass(frozen=True, slots=True)
class Script:
    """The ways of one ladder, in whatever schema."""

    ladder: Ladder

    def between(self, schema: str, current: int, target: int) -> str:
        """The way from exactly one version to another: it refuses a database that has any other."""
        way = self.ladder.steps(current, target)
        if not way:
            raise ConfigurationError(f"there is no step from schema version {current} to {target}")
        refusal = self._refusal(
            schema,
            f"at_version <> {current}",
            but=f"this script goes from {current} to {target}",
            hint=f"Print it for the version that is there: {self.ladder.command} --sql --from VERSION",
        )
        header = (
            f"-- outbox-relay: from schema version {current} to {target}, in one statement. Run it with:\n"
            f"-- psql --set ON_ERROR_STOP=1 --file {self.ladder.name}.sql\n\n"
        )
        return header + self._statement(schema, way, refusal, target)

    def up(self, schema: str, target: int) -> str:
        """The way to a version from any before it; nothing where the database has it, or a later one."""
        way = self.ladder.steps(0, target)
        if not way:
            raise ConfigurationError(
                f"there is no step up to schema version {target}; name one from 1 to {self.ladder.newest()}"
            )
        return self._statement(schema, way, "", target)

    def one_up(self, schema: str, target: int) -> str:
        """The one step to a version from that before it; nothing where the database has it, or a later one."""
        way = self.ladder.steps(target - 1, target)
        refusal = self._refusal(
            schema,
            f"at_version < {target - 1}",
            but=f"this step needs {target - 1}",
            hint=f"Bring it there with: {self.ladder.command} --to {target - 1}",
        )
        return self._statement(schema, way, refusal, target)

    def down(self, schema: str, target: int) -> str:
        """The way back to a version from any after it that this code knows; nothing where the database is no later."""
        newest = self.ladder.newest()
        way = self.ladder.steps(newest, target)
        if not way:
            raise ConfigurationError(
                f"there is no step down to schema version {target}; name one from 0 to {newest - 1}"
            )
        refusal = self._refusal(
            schema,
            f"at_version > {newest}",
            but=f"newer than the {newest} of this code",
            hint="Step back with the release that migrated it, or a later one.",
        )
        return self._statement(schema, way, refusal, target)

    def version_table(self, schema: str) -> str:
        """The qualified name of the table that records which steps were taken."""
        return f"{_identifier(schema)}.{self.ladder.record}"

    def _statement(self, schema: str, way: Sequence[Step], refusal: str, target: int) -> str:
        quoted, body = _identifier(schema), refusal
        if way[0].direction is Direction.DOWN:
            body += _REFUSAL_OF_OLD_SNAPSHOTS.format(
                target=target, schema=_literal(quoted), made=self.ladder.name, stored=self.ladder.stored
            )
        elif way[0].migration.version == 1:
            body += f"    if at_version = 0 then\n{self.ladder.record_made}\n    end if;\n"
        body += "".join(map(_step, way))
        return _FRAME.format(
            tag=_tag(self.ladder.name, body, schema),
            path=_literal(f"{quoted}, pg_temp"),
            schema=_literal(quoted),
            name=_literal(schema),
            made=self.ladder.name,
            record=self.ladder.record,
            lock=", ".join(map(str, self.ladder.lock)),
            patience=MIGRATION_TIMEOUT,
            timeout=LOCK_TIMEOUT,
            body=body,
        )

    def _refusal(self, schema: str, condition: str, *, but: str, hint: str) -> str:
        return _REFUSAL.format(
            condition=condition, but=but, hint=hint, schema=_literal(_identifier(schema)), made=self.ladder.name
        )


def complaint(error: BaseException | None) -> str | None:
    """What the database said of a script, of any driver's error; None where it was not the database that spoke."""
    said = getattr(error, "diag", error)
    primary = getattr(said, "message_primary", None) or getattr(said, "message", None)
    if not isinstance(primary, str) or not (getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)):
        return None
    hint = getattr(said, "message_hint", None) or getattr(said, "hint", None)
    return f"{primary}. {hint}" if hint else primary


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
