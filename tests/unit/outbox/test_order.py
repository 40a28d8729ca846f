"""What a claim takes of a key, and where the walk over the keys goes on."""

from relay.outbox.order import KEYS_A_CLAIM, ROWS_A_KEY, Standing, Visited, Walk, share, within


def keys(*counts: int, first: int = 0) -> list[Visited]:
    """Keys that can go on with so many rows each; of one with 0 rows none can."""
    found, rows = [], 0
    room = max(ROWS_A_KEY, 1_000 // max(1, sum(ids > 0 for ids in counts)))
    for number, ids in enumerate(counts):
        rows += min(ids, ROWS_A_KEY)
        begin = 10_000 * (first + number)
        found.append(Visited(f"key-{first + number:04}", rows, list(range(begin, begin + ids)), ids >= room))
    return found


def visit(walk: Walk, visited: list[Visited], held: int | None = None, cut: int | None = None) -> None:
    """A claim of 1,000 rows comes by, and gets all of every key but that of a place; behind another, bytes run out."""
    standings: dict[int, Standing] = {}
    for place, key in enumerate(within(visited, 1_000)):
        wanted = key.ids[:5] if place == held else key.ids
        standings |= dict.fromkeys(wanted, "taken" if cut is None or place <= cut else "cut")
    walk.visited(visited, 1_000, standings)


def test_a_walk_that_comes_to_the_end_begins_anew() -> None:
    """All keys were visited, and of each all was read: nothing is left behind."""
    walk = Walk()
    visit(walk, keys(3, 0, 99))
    assert (walk.after, walk.unseen, walk.round_ends()) == ("", False, False)


def test_a_walk_that_has_found_enough_goes_on_behind_it() -> None:
    """The last key's name is where the next claim begins."""
    walk = Walk()
    visit(walk, keys(*[100] * 10))
    assert (walk.after, walk.unseen) == ("key-0009", True)


def test_a_walk_over_keys_that_cannot_go_on_ends_too() -> None:
    """After so many keys, found or not."""
    walk = Walk()
    visit(walk, keys(*[0] * KEYS_A_CLAIM))
    assert walk.unseen


def test_a_round_remembers_what_it_left_behind() -> None:
    """A key with more rows than a claim takes of it has another turn, though the end of the round found nothing."""
    walk = Walk()
    visit(walk, keys(*[100] * 10))
    visit(walk, keys(5, first=10))
    assert not walk.unseen
    assert walk.round_ends()
    assert not walk.round_ends()


def test_a_key_alone_may_fill_a_claim() -> None:
    """Fewer keys than a claim has room for: each gives more."""
    walk = Walk()
    visit(walk, keys(499, 0))
    assert not walk.round_ends()
    visit(walk, keys(1_000))
    assert walk.round_ends()


def test_more_rows_than_a_claim_takes_are_left_behind() -> None:
    """The last key may bring more than there is room for."""
    walk = Walk()
    visit(walk, keys(*[99] * 11))
    assert walk.left_behind


def test_a_key_of_which_only_a_beginning_was_had_is_looked_at_again() -> None:
    """Whoever held the rest may have got none of it, having come too late for the first row."""
    walk = Walk()
    visit(walk, keys(100, 500), held=1)
    assert walk.round_ends()


def test_of_a_key_that_is_held_up_nothing_is_left_behind() -> None:
    """However many rows stand behind what holds it up: it would be asked for again and again."""
    walk = Walk()
    whole, held_up = keys(100, 500)
    walk.visited([whole, held_up], 1_000, dict.fromkeys(whole.ids, "taken"))
    assert not walk.round_ends()


def test_a_key_of_which_all_is_out_by_now_is_passed_over() -> None:
    """Another relay was here: what it left behind it knows itself; this one looks again."""
    walk = Walk()
    (key,) = keys(1_000)
    walk.visited([key], 1_000, dict.fromkeys(key.ids, "out"))
    assert walk.round_ends()


def test_keys_for_which_there_was_no_room_are_next() -> None:
    """Not those that have had their turn, however much they have left."""
    walk = Walk()
    visit(walk, keys(10, 10, 10, 10), cut=1)
    assert (walk.after, walk.left_behind) == ("key-0001", True)


def test_no_more_rows_are_wanted_than_a_claim_takes() -> None:
    """The last key is cut."""
    assert [len(key.ids) for key in within(keys(600, 600), 1_000)] == [600, 400]


def test_a_small_claim_takes_less_of_a_key() -> None:
    """Never more than the whole claim."""
    assert (share(50), share(1_000)) == (50, ROWS_A_KEY)
