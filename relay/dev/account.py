"""Who Postgres runs as: it refuses to be root, so root lends it the account `nobody`."""

import os
import pwd
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from relay.errors import DevError

NAME = "nobody"


class Identity(TypedDict, total=False):
    """The arguments of `Popen` that make a process somebody else."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """An unprivileged account that this process, as root, starts servers under."""

    uid: int
    gid: int

    @property
    def identity(self) -> Identity:
        """What `Popen` needs to start a process under this account and no group of ours."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_run(self, *command: str) -> bool:
        """Whether the kernel lets this account run the command: modes alone do not tell."""
        try:
            ran = subprocess.run(
                command,
                **self.identity,
                cwd="/",
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            return False
        return ran.returncode == 0

    def can_enter(self, folder: Path) -> bool:
        """Whether this account reaches the folder through all of its parents."""
        return self.can_run("/bin/sh", "-c", 'cd "$1"', "sh", str(folder))


def postgres_account() -> Account | None:
    """The account to lend to Postgres; none unless this process is root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError as error:
        raise DevError(
            f"Postgres does not run as root, and the account {NAME!r} to run it under is missing. "
            f"Create that account, or start this command as an ordinary user."
        ) from error
    return Account(entry.pw_uid, entry.pw_gid)


def temporary_parent(account: Account | None) -> Path:
    """Where the sandbox's folder goes: the system's temporary folder that the account reaches."""
    preferred = Path(tempfile.gettempdir())
    if account is None:
        return preferred
    candidates = list(dict.fromkeys((preferred, Path("/tmp"), Path("/var/tmp"))))  # noqa: S108 - parents of a private folder
    for candidate in candidates:
        if account.can_enter(candidate):
            return candidate
    raise DevError(
        f"Postgres does not run as root, and the account {NAME!r} reaches none of "
        f"{', '.join(map(str, candidates))}. Set TMPDIR to a folder that it reaches, or start this "
        "command as an ordinary user (a container's root may lack the right to change users)."
    )
