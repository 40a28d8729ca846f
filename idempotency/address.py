"""Where a store is: the URL, taken apart before any client sees it, its password kept to ourselves."""

from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from idempotency.errors import InvalidUrlError

PORT, SENTINEL_PORT = 6379, 26379

_FORMS = (
    "write redis://[user:password@]host[:port][/database], with rediss:// for TLS,"
    " redis+cluster://host:port for a Cluster, or redis+sentinel://host:port,host:port/master[/database]"
)


class Kind(Enum):
    """What answers at the address."""

    SERVER = ""
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class Address:
    """A URL of a store, taken apart."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    master: str = ""


def parse(url: str, *, cluster: bool = False) -> Address:
    """The address that a URL names. Raises InvalidUrlError, which shows nothing between `://` and `@`."""
    parts, kind = _scheme(url)
    if cluster and kind is Kind.SENTINEL:
        raise _refused(url, "it is one of Sentinel, and cluster=True is for a Cluster; drop one of the two")
    if parts.query or parts.fragment:
        names = ", ".join(sorted(parse_qs(parts.query, keep_blank_values=True))) or "a fragment"
        raise _refused(url, f"it ends in options ({names}); give them to connect() as arguments")
    user, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    path = [unquote(each) for each in parts.path.split("/")[1:] if each]
    address = Address(
        kind=Kind.CLUSTER if cluster else kind,
        hosts=tuple(_host(url, each, SENTINEL_PORT if kind is Kind.SENTINEL else PORT) for each in hosts.split(",")),
        tls=parts.scheme.startswith("rediss"),
        username=unquote(username) or None,
        password=unquote(password) or None,
    )
    match address.kind:
        case Kind.SENTINEL:
            if not path:
                raise _refused(url, "it does not name the master, as in redis+sentinel://host:26379/mymaster")
            return replace(address, master=path[0], database=_database(url, path[1:]))
        case Kind.CLUSTER:
            if _database(url, path):
                raise _refused(url, "a Cluster has database 0 alone")
            return address
        case Kind.SERVER:
            if len(address.hosts) > 1:
                raise _refused(
                    url, "several hosts are a Cluster's (redis+cluster://) or Sentinel's (redis+sentinel://)"
                )
            return replace(address, database=_database(url, path))


def _scheme(url: str) -> tuple[SplitResult, Kind]:
    if not url or not url.strip():
        raise InvalidUrlError(f"the URL of Redis is empty; {_FORMS}")
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        raise _refused(url, "its brackets do not match") from None
    name, _, kind = parts.scheme.partition("+")
    if name not in {"redis", "rediss"} or kind not in {each.value for each in Kind} or parts.scheme.endswith("+"):
        raise _refused(url, "its scheme is none of Redis")
    return parts, Kind(kind)


def _host(url: str, text: str, default: int) -> tuple[str, int]:
    name, separator, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not separator:
        name, port = text, str(default)
    if not name:
        raise _refused(url, "a host in it is empty")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _refused(
            url, "a port in it is no number up to 65535; characters such as / # ? in a password are written %2F"
        )
    return name.strip("[]"), int(port)


def _database(url: str, path: list[str]) -> int:
    if not path:
        return 0
    if len(path) > 1 or not path[0].isdecimal():
        raise _refused(url, "what follows the last host is no number of a database")
    return int(path[0])


def _refused(url: str, why: str) -> InvalidUrlError:
    return InvalidUrlError(f"the URL {_shown(url)} does not lead to a Redis: {why}; {_FORMS}")


def _shown(url: str) -> str:
    """As much of the URL as holds no secret: without an @ nobody knows where a password ends."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or not scheme.replace("+", "").isalpha():
        return "(not shown)"
    host = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
    return f"{scheme}://***@{host}" if "@" in rest else f"{scheme}://***"
