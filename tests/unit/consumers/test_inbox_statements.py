"""What several statements of the inbox have to say alike is said alike."""

import re

from consumers.inbox.session import statement

# What is on neither side of a row's being as new.
_OF_ITS_OWN = {"suspect"}


def words(name: str) -> str:
    """A statement without its line breaks, indents and comments."""
    lines = [line.split("--")[0] for line in statement(name).decode().splitlines()]
    return " ".join(" ".join(lines).split())


def changes(name: str) -> dict[str, str]:
    """What a statement makes of each column of a delivery."""
    found = re.search(r"update inbox_deliveries as delivery set (.*?) from ", words(name))
    assert found
    pairs = (each.partition(" = ") for each in re.split(r", (?=\w+ = )", found[1]))
    return {column: value for column, _, value in pairs if column not in _OF_ITS_OWN}


def test_whoever_has_a_delivery_handled_again_makes_it_as_new() -> None:
    """An operator and a revision that rose forget the same of it."""
    assert changes("requeue") == changes("deliveries_retry")
    assert {"state", "outcome", "token", "attempt_count", "ticket", "result", "finished_at"} <= set(changes("requeue"))


def test_a_key_has_one_first_delivery_for_all_who_ask() -> None:
    """Whoever claims one, and whoever looks whether it may be claimed."""
    first = re.compile(r"select id from inbox_deliveries as first where (.*?) limit 1")
    found = {name: first.findall(words(name)) for name in ("claim_heads", "find_suspects", "claim_suspect", "look")}
    assert all(len(each) == 1 for each in found.values()), found
    assert len({each[0] for each in found.values()}) == 1


def test_who_looks_and_who_counts_find_the_same_types() -> None:
    """By the same walk over the index."""
    walks = [re.search(r"with recursive types as (\(.*? as next \))", words(name)) for name in ("look", "queue")]
    look, queue = (found[1] if found else name for name, found in zip(("look", "queue"), walks, strict=True))
    assert look == queue
