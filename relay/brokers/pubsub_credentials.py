"""Google credentials that come as the content of a file, not as a file."""

import warnings
from collections.abc import Mapping
from typing import Any

import google.auth
from google.auth import aws, identity_pool, pluggable
from google.auth.credentials import Credentials, CredentialsWithQuotaProject
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher.transports import PublisherTransport

from relay.errors import ConfigurationError

_AWS_TOKEN = "urn:ietf:params:aws:token-type:aws4_request"  # noqa: S105 -- the name of a kind


def credentials_of(key: Mapping[str, Any], source: str) -> Credentials:
    """The credentials of a key's or federation's content. Raises ConfigurationError, which shows none of it.

    `source` is the setting that the key comes from.
    """
    try:
        credentials: Credentials = _load(dict(key))
    except (GoogleAuthError, ValueError, TypeError, LookupError, AttributeError):
        # The library's sentence, and its causes, may repeat parts of the key.
        raise ConfigurationError(
            f"{source} is JSON, but no key or federation file that Google's library can use; "
            "give it the whole file, unchanged"
        ) from None
    # As the library does with the file that the environment names.
    if isinstance(credentials, CredentialsWithQuotaProject):
        credentials = credentials.with_quota_project_from_environment()  # type: ignore[no-untyped-call]
    return credentials


def _load(key: dict[str, Any]) -> Any:
    # The scopes that the library asks for with a key file.
    scopes = PublisherTransport.AUTH_SCOPES
    if key["type"] == "external_account":
        # Not by the library's loader, which exchanges a token at once: an outage would look like a wrong key.
        return _federation(key).from_info(key, default_scopes=scopes)
    with warnings.catch_warnings():
        # It warns of keys that strangers hand in; this one is the operator's own, of whatever kind they chose.
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded = google.auth.load_credentials_from_dict(key, default_scopes=scopes)  # type: ignore[no-untyped-call]
    return loaded[0]


def _federation(key: dict[str, Any]) -> Any:
    if key["subject_token_type"] == _AWS_TOKEN:
        return aws.Credentials
    return pluggable.Credentials if "executable" in key["credential_source"] else identity_pool.Credentials
