"""Where Google Pub/Sub is and how it is spoken to, as settings that several programs have."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from relay.errors import ConfigurationError
from relay.google_key import key_of_file, key_of_text
from relay.setting_base import SettingBase, text_of


class PubSubSettings(SettingBase):
    """The names are the environment's, in lower case; a text that ends in a value gives the default."""

    MISSING: ClassVar[Mapping[str, str]] = {
        "pubsub_project_id": "PUBSUB_PROJECT_ID is not set; name the Google Cloud project of your topics",
    }

    google_cloud_project: str = ""
    """What platforms set. PUBSUB_PROJECT_ID goes over it, wherever either is set."""
    pubsub_project_id: Annotated[str, Field(validate_default=True)] = ""
    """The project of what is named without one: topics, subscriptions. Required, or GOOGLE_CLOUD_PROJECT."""
    pubsub_emulator_host: str = ""
    """host:port of an emulator; nothing leaves the machine then, and no credentials are asked for."""
    pubsub_endpoint: str = ""
    """A regional endpoint, such as europe-west1-pubsub.googleapis.com:443; without it, the global one."""
    google_credentials_json: SecretStr = SecretStr("")
    """The content of a key or federation file, as JSON or its base64; goes over GOOGLE_APPLICATION_CREDENTIALS."""

    google_application_credentials: str = ""
    """A key or federation file; without it and GOOGLE_CREDENTIALS_JSON, the credentials that Google's library finds."""

    @field_validator("pubsub_project_id")
    @classmethod
    def _or_of_the_platform(cls, value: str, known: ValidationInfo) -> str:
        return value or str(known.data.get("google_cloud_project", ""))

    @field_validator("google_credentials_json")
    @classmethod
    def _is_key(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()
        if text:
            key_of_text(text)
        return SecretStr(text)

    def faults(self) -> Iterator[str]:
        """A sentence for each thing that is wrong with the settings together."""
        yield from super().faults()
        emulator, endpoint = self.pubsub_emulator_host, self.pubsub_endpoint
        if emulator and endpoint:
            yield (
                f"PUBSUB_EMULATOR_HOST ({emulator}) and PUBSUB_ENDPOINT ({endpoint}) name two brokers; "
                "remove one of them"
            )
        try:
            self.google_key()
        except ConfigurationError as error:
            yield str(error)

    def require_project(self) -> str:
        """The Pub/Sub project. Raises ConfigurationError when there is none."""
        self.require("pubsub_project_id")
        return self.pubsub_project_id

    def google_key(self) -> dict[str, Any] | None:
        """What GOOGLE_CREDENTIALS_JSON holds, or else the file that GOOGLE_APPLICATION_CREDENTIALS names.

        None where neither is set, and with an emulator, which asks for none. Google's library would find the file too,
        but not where `.env` names it. Raises ConfigurationError where the file is none.
        """
        match self.google_key_source:
            case "GOOGLE_CREDENTIALS_JSON":
                return key_of_text(self.google_credentials_json.get_secret_value())
            case "GOOGLE_APPLICATION_CREDENTIALS":
                return key_of_file(self.google_application_credentials)
            case _:
                return None

    def address(self) -> dict[str, Any]:
        """Where Pub/Sub is, as the arguments of `PubSubAddress`. Raises ConfigurationError without a project."""
        return {
            "project": self.require_project(),
            "emulator": self.pubsub_emulator_host or None,
            "endpoint": self.pubsub_endpoint or None,
            "key": self.google_key(),
            "key_source": self.google_key_source,
        }

    @property
    def google_key_source(self) -> str:
        """The setting that the key comes from; empty where there is none."""
        for name in () if self.pubsub_emulator_host else ("google_credentials_json", "google_application_credentials"):
            if text_of(getattr(self, name)):
                return name.upper()
        return ""
