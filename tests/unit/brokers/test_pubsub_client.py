"""Whose credentials a client has, how it connects, and what its failures are called."""

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from google.api_core import exceptions
from google.auth import aws, identity_pool, pluggable
from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import PublishResponse

from relay.brokers import pubsub_client
from relay.brokers.pubsub import PubSub
from relay.brokers.pubsub_client import PubSubAddress, broker_error, sending
from relay.cli.parts import pubsub_address
from relay.errors import ConfigurationError
from relay.settings import load
from tests.support.pubsub import key_file

REGIONAL = "europe-west1-pubsub.googleapis.com:443"
FEDERATION = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/heroku",
    "token_url": "https://sts.googleapis.com/v1/token",
}


@pytest.fixture(scope="module")
def key() -> dict[str, str]:
    """A service account's key, made for this module."""
    return key_file(rsa.generate_private_key(public_exponent=65537, key_size=2048))


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that is not Google's, and where nobody logged in."""
    for name in os.environ:
        if name.startswith(("GOOGLE_", "PUBSUB_", "CLOUDSDK_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.chdir(tmp_path)


async def transports(address: PubSubAddress) -> tuple[Any, Any]:
    """What the publisher and the subscriber speak through, closed already."""
    publisher, subscriber = address.publisher().transport, address.subscriber().transport
    await publisher.close()  # type: ignore[no-untyped-call]
    await subscriber.close()  # type: ignore[no-untyped-call]
    return publisher, subscriber


async def test_a_key_is_used(key: dict[str, str]) -> None:
    """By both clients, with the scopes that the library asks for with a key file."""
    for transport in await transports(PubSubAddress("p", key=key)):
        assert transport._credentials.service_account_email == key["client_email"]
        assert "https://www.googleapis.com/auth/pubsub" in transport._credentials._default_scopes


@pytest.mark.parametrize(
    ("source", "kind", "used"),
    [
        ({"file": "/run/token"}, "jwt", identity_pool.Credentials),
        ({"executable": {"command": "/bin/token"}}, "jwt", pluggable.Credentials),
        ({"environment_id": "aws1", "regional_cred_verification_url": "https://x.invalid"}, "aws", aws.Credentials),
    ],
)
async def test_a_federated_identity_is_used(source: dict[str, Any], kind: str, used: type) -> None:
    """Its file names where a token of the platform's is; nobody asks for one before the first request."""
    token = {"jwt": "urn:ietf:params:oauth:token-type:jwt", "aws": "urn:ietf:params:aws:token-type:aws4_request"}
    key = {**FEDERATION, "subject_token_type": token[kind], "credential_source": source}

    for transport in await transports(PubSubAddress("p", key=key)):
        assert isinstance(transport._credentials, used)


async def test_the_setting_goes_over_the_key_file(
    key: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who sets both means the relay's own."""
    file = tmp_path / "other.json"
    file.write_text(json.dumps({**key, "client_email": "other@example.iam.gserviceaccount.com"}))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    used = []
    for text in ("", json.dumps(key)):
        monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", text)
        publisher, _ = await transports(pubsub_address(load()))
        used.append(publisher._credentials.service_account_email)

    assert used == ["other@example.iam.gserviceaccount.com", key["client_email"]]


@pytest.mark.parametrize(
    "line",
    [
        "GOOGLE_CREDENTIALS_JSON='{json}'",
        "GOOGLE_CREDENTIALS_JSON={base64}",
        "GOOGLE_APPLICATION_CREDENTIALS=key.json",
        "GOOGLE_APPLICATION_CREDENTIALS={folder}/key.json",
    ],
)
@pytest.mark.parametrize("place", ["environment", ".env"])
async def test_every_form_of_a_key_is_used_wherever_it_stands(
    line: str, place: str, key: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Google's library looks for a file in the environment alone, and knows of no `.env`."""
    text = json.dumps(key)
    (tmp_path / "key.json").write_text(text)
    encoded = base64.b64encode(text.encode()).decode()
    line = line.replace("{json}", text).replace("{base64}", encoded).replace("{folder}", str(tmp_path))
    if place == "environment":
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value.strip("'"))
    else:
        (tmp_path / ".env").write_text(f"{line}\n")
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")

    for transport in await transports(pubsub_address(load())):
        assert transport._credentials.service_account_email == key["client_email"]
        assert "https://www.googleapis.com/auth/pubsub" in transport._credentials._default_scopes


async def test_another_project_pays_where_the_environment_names_it(
    key: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library's own setting holds for a key that we read, as for one that it reads."""
    (tmp_path / "key.json").write_text(json.dumps(key))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "payer")

    publisher, subscriber = await transports(pubsub_address(load()))

    assert publisher._credentials.quota_project_id == subscriber._credentials.quota_project_id == "payer"


async def test_without_a_key_it_is_who_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The application default credentials, as `gcloud auth application-default login` leaves them."""
    login = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "somebody's"}
    (tmp_path / "application_default_credentials.json").write_text(json.dumps(login | {"quota_project_id": "p"}))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")

    address = pubsub_address(load())

    assert address.key is None
    for transport in await transports(address):
        assert transport._credentials.refresh_token == "somebody's"  # noqa: S105 -- made up


async def test_an_emulator_goes_over_everything(key: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is set all the same does not leave the process."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", json.dumps(key))
    monkeypatch.setattr(pubsub_client, "credentials_of", pytest.fail)

    for transport in await transports(pubsub_address(load())):
        assert transport._ignore_credentials


@pytest.mark.parametrize(
    "fault",
    [
        {"type": "hunter2"},
        {"type": None},
        {"private_key": "hunter2"},
        {"private_key": 1},
        {"client_email": None},
        {"token_uri": None},
    ],
    ids=str,
)
def test_a_key_that_cannot_be_used_is_refused_without_its_content(key: dict[str, str], fault: dict[str, Any]) -> None:
    """In a sentence that names the setting, and with no cause that would show in a traceback."""
    broken = {name: value for name, value in {**key, **fault}.items() if value is not None}

    for source in ("GOOGLE_CREDENTIALS_JSON", "GOOGLE_APPLICATION_CREDENTIALS"):
        with pytest.raises(ConfigurationError, match=rf"^{source} is JSON, but no key") as refused:
            PubSub(PubSubAddress("p", key=broken, key_source=source))

        assert "hunter2" not in str(refused.value)
        assert refused.value.__suppress_context__


def test_missing_credentials_are_a_fault_of_the_configuration() -> None:
    """The sentence lists the ways out."""
    for client in (PubSubAddress("p").publisher, PubSubAddress("p").subscriber):
        with pytest.raises(
            ConfigurationError,
            match=r"^no credentials .* GOOGLE_CREDENTIALS_JSON, .* GOOGLE_APPLICATION_CREDENTIALS, .* PUBSUB_EMULATOR_",
        ):
            client()


def test_a_key_is_not_shown(key: dict[str, str]) -> None:
    """Addresses are printed; keys never are."""
    assert key["private_key_id"] not in repr(PubSubAddress("p", key={"private_key_id": "k1"}))
    assert hash(PubSubAddress("p", key=key))


async def test_an_endpoint_is_connected_to(key: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """PUBSUB_ENDPOINT is where both clients go; without it, it is the global one."""
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    monkeypatch.setenv("GOOGLE_CREDENTIALS_JSON", json.dumps(key))
    hosts = []
    for endpoint in (REGIONAL, ""):
        monkeypatch.setenv("PUBSUB_ENDPOINT", endpoint)
        hosts += [transport.host for transport in await transports(pubsub_address(load()))]

    assert hosts == [REGIONAL, REGIONAL, "pubsub.googleapis.com:443", "pubsub.googleapis.com:443"]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every secure channel that is opened."""
    opened: list[dict[str, Any]] = []
    for transport in (PublisherGrpcAsyncIOTransport, SubscriberGrpcAsyncIOTransport):
        create = transport.create_channel

        def record(*args: Any, create: Any = create, **named: Any) -> Any:
            opened.append(dict(named["options"]))
            return create(*args, **named)

        monkeypatch.setattr(transport, "create_channel", record)
    return opened


async def test_the_service_is_reached_again_as_soon_as_an_emulator(
    key: dict[str, str], connections: list[dict[str, Any]]
) -> None:
    """Ours are added to the library's own options, and each is there once."""
    await transports(PubSubAddress("p", key=key))

    assert len(connections) == 2
    for options in connections:
        assert options["grpc.max_reconnect_backoff_ms"] == 1_000
        assert options["grpc.keepalive_timeout_ms"] == 10_000
        assert options["grpc.max_receive_message_length"] == -1


def made(kind: Any, *arguments: Any, **named: Any) -> Any:
    """An error of the libraries', whose constructors have no types."""
    return kind(*arguments, **named)


@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (made(exceptions.NotFound, "no topic"), "NOT_FOUND", "no topic"),
        (made(exceptions.RetryError, "60 s passed", made(exceptions.Aborted, "busy")), "ABORTED", "busy"),
        (made(exceptions.RetryError, "60 s passed", None), "RetryError", "60 s passed"),
        (made(RefreshError, "account deleted"), "UNAUTHENTICATED", "account deleted"),
        (made(RefreshError, "invalid_grant: gone", {"error": "hunter2"}), "UNAUTHENTICATED", "invalid_grant: gone"),
        (made(RefreshError, made(TransportError, "no route", "x")), "UNAUTHENTICATED", "no route"),
        (made(RefreshError, OSError("unplugged")), "UNAUTHENTICATED", "unplugged"),
        (made(RefreshError), "UNAUTHENTICATED", "RefreshError"),
        (made(TransportError, "no route", retryable=True), "UNAVAILABLE", "no route"),
    ],
    ids=[
        "call",
        "retries that failed",
        "retries without a cause",
        "refused credentials",
        "refused with the answer",
        "refused because of another",
        "refused because of the system",
        "refused without a word",
        "no way to credentials",
    ],
)
def test_a_failure_has_one_name(error: exceptions.GoogleAPIError | GoogleAuthError, code: str, detail: str) -> None:
    """The gRPC code's, whichever library noticed it, for publishing and for reading."""
    named = broker_error(error)
    assert (named.code, named.detail) == (code, detail)


class Channel:
    """Takes every call, and keeps what was said beside the request."""

    def __init__(self) -> None:
        self.transport = self.grpc_channel = self
        self.calls: list[tuple[str, dict[str, str], float]] = []

    def unary_unary(self, method: str, **_: Any) -> Any:
        """A method of the service."""

        async def call(_: object, timeout: float, metadata: Sequence[tuple[str, str]]) -> Any:  # noqa: ASYNC109 -- gRPC's
            self.calls.append((method, dict(metadata), timeout))
            return PublishResponse.pb()(message_ids=["7", "8"])

        return call


async def test_a_request_says_where_it_goes() -> None:
    """By the header of the library's own calls, from which Google routes it."""
    channel = Channel()
    send = sending(cast("PublisherAsyncClient", channel))
    assert await send("projects/p/topics/t", b"request", 1.5) == ("7", "8")
    ((method, metadata, seconds),) = channel.calls
    assert (method, seconds) == ("/google.pubsub.v1.Publisher/Publish", 1.5)
    assert metadata["x-goog-request-params"] == "topic=projects/p/topics/t"
    assert "gl-python/" in metadata["x-goog-api-client"]


async def test_no_debug_log_of_the_library_gets_what_is_sent() -> None:
    """Its interceptor would write each request there, payloads and all."""
    publisher, _ = await transports(PubSubAddress("p", emulator="127.0.0.1:1"))
    assert publisher.grpc_channel._unary_unary_interceptors == []
