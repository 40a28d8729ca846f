"""How settings are read, of whichever program: from the environment and `.env`, with a sentence for each fault."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Self

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from relay.errors import ConfigurationError
from relay.kernel.duration import parse, written
from relay.kernel.supervise import CANCEL_SECONDS, CLOSE_SECONDS
from relay.setting_names import Namespace

# What remains after the soft timeout; at the defaults, half a second less than Heroku grants.
HARD_END = timedelta(seconds=CANCEL_SECONDS + CLOSE_SECONDS + 0.5)
_HEROKU_KILLS = parse("30s")


class SettingBase(BaseSettings):
    """Names are the environment's, in lower case; the text behind a field ends in its default where it has one."""

    model_config = SettingsConfigDict(
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        use_attribute_docstrings=True,
    )

    NAMESPACE: ClassVar[Namespace]
    MISSING: ClassVar[Mapping[str, str]] = {}
    """What to say of a field that is not set and has to be."""

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings. Raises ConfigurationError with one line for each that is wrong."""
        try:
            settings = cls(**overrides)
        except ValidationError as error:
            raise ConfigurationError("\n".join(map(_sentence, error.errors()))) from None
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the environment or .env cannot be read: {error}") from None
        if faults := list(settings.faults()):
            raise ConfigurationError("\n".join(faults))
        return settings

    @classmethod
    def sources(cls) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What the environment sets, and what `.env` does, ours or not, by names in capitals.

        An empty value sets nothing, and neither does a file that cannot be read: `load` says it.
        """
        environment = EnvSettingsSource(cls).env_vars
        try:
            file = DotEnvSettingsSource(cls).env_vars
        except (OSError, UnicodeDecodeError):
            file = {}
        return _set(environment), _set(file)

    @classmethod
    def strangers(cls) -> list[str]:
        """A sentence for each name, set anywhere, that looks like ours and has no effect. None holds a value."""
        environment, file = cls.sources()
        return cls.NAMESPACE.stray({*environment, *file}, [name.upper() for name in cls.model_fields])

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the settings together."""
        yield from ()

    def require(self, *names: str) -> None:
        """Raise ConfigurationError with a sentence for each of these settings that is not set."""
        missing = [self.MISSING[name] for name in names if not text_of(getattr(self, name))]
        if missing:
            raise ConfigurationError(". ".join(missing))


def ends_too_late(name: str, shutdown: timedelta, dyno: str) -> Iterator[str]:
    """A sentence where Heroku kills a process before it has ended by itself."""
    if dyno and shutdown + HARD_END >= _HEROKU_KILLS:
        yield (
            f"{name} ({written(shutdown)}) and the {written(HARD_END)} after it do not end before Heroku "
            f"kills {dyno} at {written(_HEROKU_KILLS)}; set it to 25s or less"
        )


def text_of(value: str | SecretStr) -> str:
    """The value, of a secret too."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _set(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name.upper(): value.strip() for name, value in values.items() if value and value.strip()}


def _sentence(fault: ErrorDetails) -> str:
    """What is wrong, with the value; our own validators name it themselves where it is no secret."""
    name = str(fault["loc"][0]).upper() if fault["loc"] else "the settings"
    if fault["type"] == "value_error":
        return f"{name} {fault['msg'].removeprefix('Value error, ')}"
    if fault["type"].startswith("bool_"):
        return f"{name} is {fault['input']!r:.100}: write on or off"
    return f"{name} is {fault['input']!r:.100}: {fault['msg'][0].lower()}{fault['msg'][1:]}"
