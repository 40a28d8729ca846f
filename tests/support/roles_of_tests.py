"""The roles that tests run as: each with the rights that `relay grants` gives, and not one more.

What stands for a service emits as the emitter, what stands for a relay or an operator works as the relay, and whoever
only looks is the viewer. What a test itself inspects or tampers with stays the owner's, a superuser.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from relay.outbox import grants
from relay.outbox.grants import Grantee, Role


@dataclass(frozen=True)
class Roles:
    """Three roles, of the same names on every server of a session: roles are a server's, and sessions may share one."""

    session: str = field(default_factory=lambda: secrets.token_hex(8))
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def grantees(self) -> list[Grantee]:
        """Their names, and what each is for."""
        return [Grantee(role, self.name(role)) for role in Role]

    def url(self, role: Role, url: str) -> str:
        """The same database, as this role."""
        return make_conninfo(url, user=self.name(role), password=self.password)

    def name(self, role: Role) -> str:
        """What a role is called."""
        return f"test_{self.session}_{role.value}"

    @contextmanager
    def on(self, server_url: str, template: str) -> Iterator[None]:
        """Have the roles on the server, with their rights in a database that others are copied from."""
        url = make_conninfo(server_url, dbname=template)
        with psycopg.connect(url) as owner:
            created = [grantee.name for grantee in self.grantees if self._create(owner, grantee.name)]
            grants.apply(owner, "public", self.grantees)
        try:
            yield
        finally:
            with psycopg.connect(url) as owner:
                for name in created:
                    owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))

    def _create(self, owner: psycopg.Connection[Any], name: str) -> bool:
        """Whether it was not there: a server may have several templates."""
        if owner.execute("select from pg_roles where rolname = %s", [name]).fetchone() is not None:
            return False
        create = sql.SQL("create role {} login password {}")
        owner.execute(create.format(sql.Identifier(name), sql.Literal(self.password)))
        return True


ROLES = Roles()


def as_emitter(url: str) -> str:
    """The same database, as a service."""
    return ROLES.url(Role.EMITTER, url)


def acting_as_emitter(url: str) -> str:
    """The same database, as its owner who acts as a service, but for `owning`."""
    return make_conninfo(url, options=f"-c role={ROLES.name(Role.EMITTER)}")


@contextmanager
def owning(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Within a transaction of a service that acts so, do what none may."""
    row = connection.execute("select current_user").fetchone()
    connection.execute("set local role none")
    yield
    connection.execute("select set_config('role', %s, true)", row)


def as_relay(url: str) -> str:
    """The same database, as a relay or an operator."""
    return ROLES.url(Role.RELAY, url)


def as_viewer(url: str) -> str:
    """The same database, as somebody who only looks."""
    return ROLES.url(Role.VIEWER, url)
