"""What an error that came out of a handler means for its event."""

import pickle
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, IntEnum, StrEnum
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import grpc
import psycopg
import pytest
from google.api_core import exceptions as google_errors
from hypothesis import given
from hypothesis import strategies as st

from consumers import errors
from consumers.classification import Classification, Fatal, Transient, code_of
from consumers.errors import ConfigurationError, FatalError, TransientError


class Payment(StrEnum):
    """Codes of a payment service."""

    LIMITED = "RATE_LIMITED"
    DECLINED = "CARD_DECLINED"


class Numbered(IntEnum):
    """Codes that are numbers."""

    BUSY = 17


class Described(Enum):
    """Codes with more than a name, as gRPC has them."""

    AWAY = (14, "unavailable")


class CodedError(Exception):
    """One that has whatever attributes it is given."""

    def __init__(self, message: str = "", **attributes: Any) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


class BaseOfTwo(Exception):  # noqa: N818 -- its place in the tree is the point
    """At the top."""


class Middle(BaseOfTwo):
    """Below it."""


class Lowest(Middle):
    """At the bottom."""


class HostileError(Exception):
    """Raises whatever it is asked, except for what it is."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return HostileError
        raise RuntimeError(name)


class TestUnlessToldOtherwise:
    """A consumer that says nothing loses nothing."""

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("?"),
            KeyError("?"),
            TimeoutError(),
            ConnectionRefusedError(),
            CodedError(code="NOPE"),
            Exception(),
        ],
    )
    def test_every_error_is_transient(self, error: Exception) -> None:
        """Nobody knows that it will not pass."""
        assert isinstance(Classification().verdict(error), Transient)

    def test_there_is_nothing_in_the_tables(self) -> None:
        """All defaults."""
        tables = Classification()
        assert tables.retry_on is None
        assert tables.retry_codes is None
        assert tables.fatal == ()
        assert tables.fatal_codes == frozenset()

    def test_a_verdict_names_the_reason(self) -> None:
        """By its code, or its class."""
        assert Classification().verdict(ValueError("?")) == Transient("ValueError")
        assert Classification(fatal=(ValueError,)).verdict(ValueError("?")) == Fatal("ValueError")
        assert Classification(fatal_codes={"GONE"}).verdict(CodedError(code="GONE")) == Fatal("GONE")


class TestWhatTheErrorSaysItself:
    """Whoever raised it knows best."""

    def test_a_handler_says_not_this_time(self) -> None:
        """With a code, and how long to wait."""
        error = TransientError("the queue is full", code="FULL", delay="90s")
        assert str(error) == "the queue is full"
        assert Classification().verdict(error) == Transient("FULL", timedelta(seconds=90))

    def test_a_handler_says_never(self) -> None:
        """With a code."""
        assert Classification().verdict(FatalError("no such account", code="NO_ACCOUNT")) == Fatal("NO_ACCOUNT")

    def test_without_a_code_it_is_the_class(self) -> None:
        """A subclass is a name as well."""

        class AccountClosedError(FatalError):
            """Closed."""

        assert Classification().verdict(AccountClosedError("closed")) == Fatal("AccountClosedError")
        assert Classification().verdict(TransientError("later")) == Transient("TransientError")

    @pytest.mark.parametrize("retryable", [True, False])
    def test_the_attribute_counts_on_any_error(self, retryable: bool) -> None:  # noqa: FBT001 -- both values are tried
        """Errors of libraries have it too."""
        expected = Transient if retryable else Fatal
        assert isinstance(Classification().verdict(CodedError(retryable=retryable)), expected)
        assert isinstance(Classification(retry_codes=()).verdict(CodedError(retryable=retryable)), expected)

    @pytest.mark.parametrize("retryable", [None, "no", 0, 1])
    def test_an_attribute_that_is_no_truth_value_says_nothing(self, retryable: object) -> None:
        """The tables decide."""
        assert isinstance(Classification().verdict(CodedError(retryable=retryable)), Transient)
        assert isinstance(Classification(retry_on=()).verdict(CodedError(retryable=retryable)), Fatal)

    def test_it_goes_before_every_table(self) -> None:
        """A code that is retried in general, but not this time."""
        tables = Classification(retry_codes={"FULL"}, fatal_codes={"GONE"}, fatal=(Exception,))
        assert isinstance(tables.verdict(FatalError("?", code="FULL")), Fatal)
        assert isinstance(tables.verdict(TransientError("?", code="GONE")), Transient)


class TestTables:
    """What a consumer may say about errors of others."""

    def test_fatal_classes_leave_all_others_transient(self) -> None:
        """An open list."""
        tables = Classification(fatal=(ValueError,))
        assert isinstance(tables.verdict(ValueError("?")), Fatal)
        assert isinstance(tables.verdict(UnicodeDecodeError("utf-8", b"", 0, 1, "?")), Fatal)
        assert isinstance(tables.verdict(KeyError("?")), Transient)

    def test_retryable_classes_leave_all_others_fatal(self) -> None:
        """A closed list."""
        tables = Classification(retry_on=(TimeoutError, ConnectionError))
        assert isinstance(tables.verdict(ConnectionResetError()), Transient)
        assert isinstance(tables.verdict(OSError("?")), Fatal)

    def test_retryable_codes_leave_all_others_fatal(self) -> None:
        """A closed list of codes; an error without one goes by its class name."""
        tables = Classification(retry_codes={"RATE_LIMITED", 503, "TimeoutError"})
        assert isinstance(tables.verdict(CodedError(code="RATE_LIMITED")), Transient)
        assert isinstance(tables.verdict(CodedError(response=SimpleNamespace(status_code=503))), Transient)
        assert isinstance(tables.verdict(TimeoutError()), Transient)
        assert isinstance(tables.verdict(CodedError(code="DECLINED")), Fatal)
        assert isinstance(tables.verdict(ConnectionResetError()), Fatal)

    def test_an_empty_table_lets_nothing_be_retried(self) -> None:
        """It is a table, and nothing is in it."""
        assert isinstance(Classification(retry_on=()).verdict(TimeoutError()), Fatal)
        assert isinstance(Classification(retry_codes=()).verdict(TimeoutError()), Fatal)

    def test_fatal_codes_leave_all_others_transient(self) -> None:
        """An open list of codes."""
        tables = Classification(fatal_codes={404})
        assert isinstance(tables.verdict(CodedError(response=SimpleNamespace(status_code=404))), Fatal)
        assert isinstance(tables.verdict(CodedError(response=SimpleNamespace(status_code=500))), Transient)

    def test_a_code_goes_before_a_class(self) -> None:
        """One client raises one class for everything."""
        tables = Classification(fatal=(CodedError,), retry_codes={429})
        assert isinstance(tables.verdict(CodedError(code=429)), Transient)
        assert isinstance(tables.verdict(CodedError(code=400)), Fatal)
        tables = Classification(retry_on=(CodedError,), fatal_codes={404})
        assert isinstance(tables.verdict(CodedError(code=404)), Fatal)
        assert isinstance(tables.verdict(CodedError(code=500)), Transient)

    @pytest.mark.parametrize(
        ("retry_on", "fatal", "expected"),
        [
            ([BaseOfTwo], [Middle], Fatal),
            ([Middle], [BaseOfTwo], Transient),
            ([Lowest], [Middle], Transient),
            ([BaseOfTwo, Lowest], [Middle], Transient),
            ([Middle, Exception], [Lowest, BaseOfTwo], Fatal),
            ([Exception], [BaseOfTwo], Fatal),
            ([BaseOfTwo], [Exception], Transient),
        ],
    )
    def test_the_nearest_class_decides(
        self, retry_on: list[type[Exception]], fatal: list[type[Exception]], expected: type
    ) -> None:
        """A special case needs no order of the tables."""
        assert isinstance(Classification(retry_on=retry_on, fatal=fatal).verdict(Lowest()), expected)

    def test_with_two_bases_it_is_the_one_that_python_asks_first(self) -> None:
        """The order of the class's own bases."""

        class BothError(KeyError, OSError):
            """Two errors at once."""

        assert isinstance(Classification(retry_on=(OSError,), fatal=(KeyError,)).verdict(BothError()), Fatal)
        assert isinstance(Classification(retry_on=(KeyError,), fatal=(OSError,)).verdict(BothError()), Transient)

    def test_all_classes_may_be_retried_beside_a_table(self) -> None:
        """Exception in the table opens it."""
        tables = Classification(fatal=(OSError,), retry_on=(ConnectionError, Exception))
        assert isinstance(tables.verdict(ConnectionResetError()), Transient)
        assert isinstance(tables.verdict(FileNotFoundError()), Fatal)
        assert isinstance(tables.verdict(ValueError()), Transient)

    def test_tables_are_values(self) -> None:
        """Compared, and read by the log line at the start."""
        one = Classification(fatal=[ValueError, ValueError], retry_codes=[503, "503", Payment.LIMITED])
        assert one == Classification(fatal=(ValueError,), retry_codes={"RATE_LIMITED", "503"})
        assert one.retry_codes == frozenset({"503", "RATE_LIMITED"})
        assert hash(one) == hash(pickle.loads(pickle.dumps(one)))  # noqa: S301 -- our own


class TestGroups:
    """A TaskGroup raises one."""

    def test_a_group_is_fatal_where_one_in_it_is(self) -> None:
        """Another attempt would only meet it again."""
        group = ExceptionGroup("", [TimeoutError(), ExceptionGroup("", [FatalError("?", code="GONE")]), ValueError()])
        assert Classification().verdict(group) == Fatal("GONE")

    def test_a_group_of_transient_errors_waits_for_the_longest(self) -> None:
        """The code is the first one's."""
        group = ExceptionGroup("", [TimeoutError(), TransientError("?", delay=5), TransientError("?", delay="2m")])
        assert Classification().verdict(group) == Transient("TimeoutError", timedelta(minutes=2))

    def test_every_one_must_be_in_a_closed_table(self) -> None:
        """As each of them alone."""
        tables = Classification(retry_on=(TimeoutError,))
        assert isinstance(tables.verdict(ExceptionGroup("", [TimeoutError(), TimeoutError()])), Transient)
        assert tables.verdict(ExceptionGroup("", [TimeoutError(), ValueError()])) == Fatal("ValueError")


class TestCodes:
    """A short name for the reason."""

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (CodedError(code="RATE_LIMITED"), "RATE_LIMITED"),
            (CodedError(code="card.declined/3-D:x"), "card.declined/3-D:x"),
            (CodedError(code=503), "503"),
            (CodedError(code=-1), "-1"),
            (CodedError(code=HTTPStatus.BAD_GATEWAY), "502"),
            (CodedError(code=Payment.LIMITED), "RATE_LIMITED"),
            (CodedError(code=Numbered.BUSY), "17"),
            (CodedError(code=Described.AWAY), "AWAY"),
            (CodedError(error_code="E42"), "E42"),
            (CodedError(code=None, error_code="E42"), "E42"),
            (CodedError(code="FIRST", error_code="SECOND"), "FIRST"),
            (CodedError(status_code=429), "429"),
            (CodedError(response=SimpleNamespace(status_code=404)), "404"),
            (CodedError(response=None), "CodedError"),
            (CodedError(sqlstate="40001", code="gkpj"), "40001"),
            (CodedError(orig=CodedError(sqlstate="40P01"), code="gkpj"), "40P01"),
            (CodedError(orig=CodedError(pgcode="23505"), code="gkpj"), "23505"),
            (psycopg.errors.SerializationFailure("?"), "40001"),
            (google_errors.ServiceUnavailable("?"), "503"),  # type: ignore[no-untyped-call]
            (CodedError(code=lambda: grpc.StatusCode.UNAVAILABLE, details=str), "UNAVAILABLE"),
            (ValueError("payload"), "ValueError"),
            (KeyError("payload"), "KeyError"),
        ],
    )
    def test_each_kind_of_error_has_its_own_place_for_it(self, error: Exception, code: str) -> None:
        """Else it is the name of the class."""
        assert code_of(error) == code

    @pytest.mark.parametrize(
        "code",
        [
            "",
            " ",
            "Ada Lovelace",
            "ada@example.com",
            '{"iban": 1}',
            "x" * 65,
            "٣",
            True,
            1.5,
            b"GONE",
            ["GONE"],
            (1, "x"),
            object(),
        ],
    )
    def test_what_looks_like_data_is_none(self, code: object) -> None:
        """It would be stored, logged, and counted by a metric."""
        assert code_of(CodedError(code=code)) == "CodedError"
        assert code_of(CodedError(code=code, detail="as a broker's error has it")) == "CodedError"
        assert code_of(CodedError(code=code, error_code="E42")) == "E42"

    def test_a_number_with_more_digits_than_python_writes_is_none(self) -> None:
        """Nobody counts reasons that high."""
        assert code_of(CodedError(code=10**5_000)) == "CodedError"

    @given(st.text() | st.integers() | st.none() | st.floats() | st.binary())
    def test_a_code_is_always_short_and_plain(self, code: object) -> None:
        """Whatever the error has."""
        found = code_of(CodedError(code=code, detail="?"))
        assert 1 <= len(found) <= 64
        assert found.isascii()
        assert found.isprintable()
        assert " " not in found

    def test_a_class_with_a_long_or_foreign_name_has_one_too(self) -> None:
        """Cut, or the most general one."""
        assert code_of(type("E" * 200, (Exception,), {})()) == "E" * 64
        assert code_of(type("Überlauf", (Exception,), {})()) == "Exception"

    def test_an_error_that_fails_when_it_is_asked_is_judged_by_its_class(self) -> None:
        """A fault in the error must not hide it."""
        assert Classification().verdict(HostileError()) == Transient("HostileError")
        assert Classification(fatal=(HostileError,)).verdict(HostileError()) == Fatal("HostileError")

    def test_a_subclass_that_forgets_its_base_is_judged_all_the_same(self) -> None:
        """It has no delay then."""

        class ForgetfulError(TransientError):
            """Calls nobody."""

            def __init__(self) -> None:
                pass

        assert Classification().verdict(ForgetfulError()) == Transient("ForgetfulError")


class TestDelaysOfHandlers:
    """How long a handler asks to wait."""

    @pytest.mark.parametrize(
        ("delay", "expected"),
        [
            (None, None),
            (0, 0),
            (2.5, 2.5),
            ("500ms", 0.5),
            (timedelta(minutes=1), 60),
            (timedelta(days=400), 604_800),
            ("400d", 604_800),
        ],
    )
    def test_it_is_read_as_in_a_policy(self, delay: timedelta | float | str | None, expected: float | None) -> None:
        """And never longer than a week."""
        asked = TransientError("busy", delay=delay).delay
        assert asked == (None if expected is None else timedelta(seconds=expected))

    @pytest.mark.parametrize("delay", ["120", "Wed, 21 Oct 2026 07:28:00 GMT", -5, float("nan"), True, []])
    def test_one_that_cannot_be_read_hides_no_failure(self, delay: Any) -> None:
        """A header of a server may hold anything: the policy decides then, and the error says so."""
        error = TransientError("busy", code="BUSY", delay=delay)
        assert Classification(retry_on=()).verdict(error) == Transient("BUSY", None)
        assert str(error).startswith("busy (and its delay is left to the retry policy: ")

    def test_errors_travel_between_processes(self) -> None:
        """With what they carry."""
        error = pickle.loads(pickle.dumps(TransientError("busy", code=Payment.LIMITED, delay="30s")))  # noqa: S301 -- our own
        assert (str(error), error.code, error.delay) == ("busy", Payment.LIMITED, timedelta(seconds=30))
        error = pickle.loads(pickle.dumps(FatalError("never", code="GONE")))  # noqa: S301 -- the same
        assert (str(error), error.code, error.retryable) == ("never", "GONE", False)


class TestWhatIsRefused:
    """When it is built, not when the first event fails."""

    @pytest.mark.parametrize(
        ("build", "sentence"),
        [
            (
                lambda: Classification(retry_on=(OSError, ValueError, KeyError), fatal=(ValueError, KeyError)),
                "KeyError, ValueError stands in retry_on and in fatal; keep one",
            ),
            (
                lambda: Classification(retry_codes={503}, fatal_codes={"503"}),
                "503 stands in retry_codes and in fatal_codes; keep one",
            ),
            (
                lambda: Classification(fatal=ValueError),  # type: ignore[arg-type]
                "fatal is <class 'ValueError'>; give several, like (TimeoutError,)",
            ),
            (
                lambda: Classification(retry_codes="503"),
                "retry_codes is '503'; give several, like {\"RATE_LIMITED\", 503}",
            ),
            (
                lambda: Classification(retry_on=("TimeoutError",)),  # type: ignore[arg-type]
                "retry_on has 'TimeoutError', which is no class of except",
            ),
            (
                lambda: Classification(fatal=(KeyboardInterrupt,)),  # type: ignore[arg-type]
                "which is no class of exceptions; a handler fails by those",
            ),
            (
                lambda: Classification(fatal=(ExceptionGroup,)),
                "fatal has ExceptionGroup; a group is judged by the errors in it, so name those",
            ),
            (
                lambda: Classification(fatal=(TransientError,)),
                "fatal has TransientError, whose own `retryable` is True and decides first; leave it out",
            ),
            (
                lambda: Classification(retry_on=(FatalError,)),
                "retry_on has FatalError, whose own `retryable` is False and decides first; leave it out",
            ),
            (
                lambda: Classification(fatal_codes={"Ada Lovelace"}),
                "'Ada Lovelace', which no error has for its code; a code has up to 64 letters, digits and _ . : / -",
            ),
            (lambda: Classification(retry_codes={True}), "retry_codes has True, which no error has for its code"),
        ],
    )
    def test_it_is_said_what_is_wrong_and_what_to_do(self, build: Callable[[], object], sentence: str) -> None:
        """One sentence for whoever started the consumer."""
        with pytest.raises(ConfigurationError) as refusal:
            build()
        assert sentence in str(refusal.value)

    def test_saying_it_twice_is_fine(self) -> None:
        """TransientError is transient already, and so is FatalError fatal."""
        Classification(retry_on=(TransientError,), fatal=(FatalError,))


def test_the_tree_is_drawn_as_it_is() -> None:
    """Every class, under its base, as the docstring has it."""
    drawn = {line.split()[1] for line in str(errors.__doc__).splitlines() if line.startswith(("├──", "└──"))}
    below = {cls.__name__ for cls in errors.ConsumerError.__subclasses__() if cls.__module__ == errors.__name__}
    assert drawn == below
