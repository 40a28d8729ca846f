"""Reads the lists of processes that Heroku starts: the Procfile and heroku.yml."""

Node = dict[str, "Node"] | list[str] | str


def procfile(text: str) -> dict[str, str]:
    """Commands by process."""
    return {name: command.strip() for name, _, command in (line.partition(":") for line in text.splitlines())}


def heroku_processes(text: str) -> dict[str, str]:
    """Commands by process, the release phase among them, as the Procfile lists them."""
    manifest = manifest_of(text)
    run, release = manifest["run"], manifest["release"]
    match run, release:
        case dict(), {"command": [migrate]}:
            return {"release": str(migrate), **{name: str(command) for name, command in run.items()}}
    raise ValueError("heroku.yml: there must be processes to run, and one command to release with")


def manifest_of(text: str) -> dict[str, Node]:
    """The little YAML that our manifest needs: nested mappings, two spaces a level, and lists of plain text."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    manifest, rest = _mapping(lines, 0)
    if rest:
        raise ValueError(f"heroku.yml: {rest[0]!r} is not where it could be")
    return manifest


def _mapping(lines: list[str], depth: int) -> tuple[dict[str, Node], list[str]]:
    found: dict[str, Node] = {}
    while lines and _depth(lines[0]) == depth and not lines[0].lstrip().startswith("- "):
        name, colon, value = lines[0].strip().partition(":")
        if not colon or name in found:
            raise ValueError(f"heroku.yml: {lines[0]!r} is no new `name: value`")
        lines = lines[1:]
        if value:
            found[name] = value.strip()
        elif lines and lines[0].lstrip().startswith("- "):
            found[name], lines = _items(lines, depth + 1)
        else:
            found[name], lines = _mapping(lines, depth + 1)
    return found, lines


def _items(lines: list[str], depth: int) -> tuple[list[str], list[str]]:
    found = []
    while lines and _depth(lines[0]) == depth and lines[0].lstrip().startswith("- "):
        found.append(lines[0].strip().removeprefix("- ").strip())
        lines = lines[1:]
    return found, lines


def _depth(line: str) -> int:
    depth, odd = divmod(len(line) - len(line.lstrip(" ")), 2)
    if odd:
        raise ValueError(f"heroku.yml: {line!r} is not indented by two spaces a level")
    return depth
