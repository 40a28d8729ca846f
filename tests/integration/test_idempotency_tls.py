"""The store over TLS, with the self-signed certificates that providers such as Heroku have."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from idempotency import Manager, StoreUnavailableError, SyncManager, connect, connect_sync
from relay.dev.stack import Stack
from tests.support.streams import answered

CHUNK = 65_536
SOON = timedelta(milliseconds=1)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "certificate.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return pem


@pytest.fixture
async def url(stack: Stack, certificate: Path) -> AsyncIterator[str]:
    """The URL of the stack's Redis behind such a certificate."""
    upstream = urlsplit(stack.redis_url)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the other side went first
            while data := await source.read(CHUNK):
                target.write(data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis, to_redis = await asyncio.open_connection(upstream.hostname, upstream.port)
        await asyncio.gather(carry(reader, to_redis), carry(redis, writer))

    async with answered(serve, ssl=context) as port:
        yield f"rediss://:{upstream.password}@127.0.0.1:{port}"


async def test_a_certificate_that_nobody_vouches_for_is_refused(url: str) -> None:
    """Unless somebody says otherwise."""
    async with connect(url) as redis:
        with pytest.raises(StoreUnavailableError, match="certificate"):
            await Manager(redis, retry_for=SOON).check_and_mark_processed("billing", uuid4())


async def test_it_is_taken_when_told_so(url: str, certificate: Path) -> None:
    """Unchecked, or as one that is trusted."""
    event = uuid4()
    async with connect(url, verify=False) as redis:
        assert not await Manager(redis).check_and_mark_processed("billing", event)
    async with connect(url, ca_file=certificate) as redis:
        assert await Manager(redis).check_and_mark_processed("billing", event)


async def test_it_is_the_same_without_an_event_loop(url: str) -> None:
    """With the same options."""

    def ask(*, verify: bool) -> bool:
        client = connect_sync(url, verify=verify)
        try:
            return SyncManager(client, retry_for=SOON).check_and_mark_processed("billing", uuid4())
        finally:
            client.close()

    assert not await asyncio.to_thread(ask, verify=False)
    with pytest.raises(StoreUnavailableError, match="certificate"):
        await asyncio.to_thread(ask, verify=True)
