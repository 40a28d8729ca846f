"""What the scripts do, in Python, over a dictionary that forgets by a clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from idempotency.call import Call


@dataclass(slots=True)
class _Said:
    """The answer of a script in the making."""

    words: list[str] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)


class Simulation:
    """Answers calls as Redis would, without one. Each method is the script of its name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[str, tuple[bytes, float]] = {}

    def run(self, call: Call[Any]) -> bytes | list[bytes]:
        """Carry out the script of the call over its events."""
        said = _Said()
        script = getattr(self, f"_{call.script.name}")
        for each in range(len(call.items)):
            keys = call.keys[each * call.script.keys : (each + 1) * call.script.keys]
            args = call.args[each * call.script.args : (each + 1) * call.script.args]
            script(said, keys, list(args), call.shared)
        return [" ".join(said.words).encode(), *said.results]

    def _mark(self, said: _Said, keys: list[str], args: list[bytes], shared: tuple[bytes, ...]) -> None:
        (mark, claim), (token,), (life, telling) = keys, args, shared
        stored = self._get(mark)
        if stored == token:
            said.words.append("M")
        elif stored is not None:
            _done(said, stored, telling=telling == b"1")
        elif self._get(claim) is not None:
            said.words.append(self._in_progress(claim))
        else:
            self._set(mark, token, int(life))
            said.words.append("M")

    def _claim(self, said: _Said, keys: list[str], args: list[bytes], shared: tuple[bytes, ...]) -> None:
        (mark, claim, attempts), (token, fingerprint), (lease, life) = keys, args, shared
        stored, held = self._get(mark), self._get(claim)
        if stored is not None:
            if _conflict(fingerprint, _fields(stored, 4)[2]):
                said.words.append("F")
            else:
                _done(said, stored, telling=True)
        elif held is not None:
            owner, attempt, other = _fields(held, 3)
            if owner == token:
                self._set(claim, held, int(lease))
                said.words.append(f"C{int(attempt)}")
            else:
                said.words.append("F" if _conflict(fingerprint, other) else self._in_progress(claim))
        else:
            count, last = self._counted(attempts)
            count += last != token
            self._set(claim, b"%s\n%d\n%s" % (token, count, fingerprint), int(lease))
            self._set(attempts, b"%d %s" % (count, token), int(life))
            said.words.append(f"C{count}")

    def _renew(self, said: _Said, keys: list[str], args: list[bytes], _: tuple[bytes, ...]) -> None:
        (key,), (token, lease) = keys, args
        held = self._get(key)
        kept = held is not None and held.partition(b"\n")[0] == token
        if held is not None and kept:
            self._set(key, held, int(lease))
        said.words.append("K" if kept else "L")

    def _complete(self, said: _Said, keys: list[str], args: list[bytes], shared: tuple[bytes, ...]) -> None:
        (mark, claim, attempts), (token, value), (life,) = keys, args, shared
        stored, held = self._get(mark), self._get(claim)
        if stored is not None:
            said.words.append("K" if stored.partition(b"\n")[0] == token else "L")
        elif (held or b"").partition(b"\n")[0] in {token, b""}:
            self._set(mark, value, int(life))
            self._delete(claim, attempts)
            said.words.append("K")
        else:
            said.words.append("L")

    def _release(self, said: _Said, keys: list[str], args: list[bytes], shared: tuple[bytes, ...]) -> None:
        (claim, attempts), (token, counted, rest), (life,) = keys, args, shared
        held = self._get(claim)
        owner, _, fingerprint = (None, b"", b"") if held is None else _fields(held, 3)
        count, last = self._counted(attempts)
        if last == token:
            count -= counted != b"1"
            if count > 0:
                self._set(attempts, b"%d " % count, int(life))
            else:
                self._delete(attempts)
        if owner == token or (held is None and last == token):
            if int(rest) > 0:
                self._set(claim, b"\n0\n" + fingerprint, int(rest))
            else:
                self._delete(claim)
        said.words.append("K")

    def _forget(self, said: _Said, keys: list[str], args: list[bytes], _: tuple[bytes, ...]) -> None:
        (only,), stored = args, _fields(self._get(keys[0]) or b"", 4)
        meant = not only or b"%s\n%s" % (stored[1], stored[3]) == only
        said.words.append("K" if meant and self._delete(*keys) else "L")

    def _discard(self, said: _Said, keys: list[str], args: list[bytes], _: tuple[bytes, ...]) -> None:
        (key,), (token,) = keys, args
        stored = self._get(key)
        if stored == token:
            self._delete(key)
        said.words.append("K" if stored in {token, None} else "L")

    def _lock(self, said: _Said, keys: list[str], args: list[bytes], shared: tuple[bytes, ...]) -> None:
        (key,), (token,), (lease,) = keys, args, shared
        if self._get(key) in {token, None}:
            self._set(key, token, int(lease))
            said.words.append("C")
        else:
            said.words.append(self._in_progress(key))

    def _get(self, key: str) -> bytes | None:
        value, until = self._values.get(key, (None, 0.0))
        if value is not None and self._clock() >= until:
            del self._values[key]
            return None
        return value

    def _set(self, key: str, value: bytes, life_ms: int) -> None:
        self._values[key] = (value, self._clock() + life_ms / 1_000)

    def _delete(self, *keys: str) -> int:
        there = [key for key in keys if self._get(key) is not None]
        for key in there:
            del self._values[key]
        return len(there)

    def _in_progress(self, key: str) -> str:
        return f"P{max(1, round(1_000 * (self._values[key][1] - self._clock())))}"

    def _counted(self, attempts: str) -> tuple[int, bytes]:
        count, _, last = (self._get(attempts) or b"0 ").partition(b" ")
        return int(count), last


def _fields(stored: bytes, number: int) -> list[bytes]:
    """The lines of a stored value; a bare mark is its token alone."""
    found = stored.split(b"\n", number - 1)
    return found + [b""] * (number - len(found))


def _conflict(given: bytes, stored: bytes) -> bool:
    return bool(given and stored and given != stored)


def _done(said: _Said, stored: bytes, *, telling: bool) -> None:
    _, kind, _, result = _fields(stored, 4)
    if telling and kind:
        said.results.append(result)
    said.words.append(f"D{kind.decode() if telling else ''}")
