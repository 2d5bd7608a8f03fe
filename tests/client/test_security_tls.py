"""TLS between our client and a broker of a few lines: whom we trust, and what we show."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from oncelog.client.cluster import Cluster
from oncelog.client.errors import BadSettings, ClientError, TlsFailed, Unreachable
from oncelog.client.security import Pem, Security, Tls
from oncelog.client.settings import ClientSettings
from tests.client.fake_broker import FakeBroker, running
from tests.peers.certificates import Authority, Issued, make_authority


@dataclass(frozen=True)
class World:
    """An authority and those whom it vouches for."""

    authority: Authority
    broker: Issued
    elsewhere: Issued
    client: Issued

    @property
    def trusted(self) -> Pem:
        return Pem(setting="ssl.ca.location", path=str(self.authority.certificate))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    authority = make_authority(tmp_path_factory.mktemp("certificates"), "authority")
    return World(
        authority=authority,
        broker=authority.issue("broker", hosts=["127.0.0.1", "localhost"]),
        elsewhere=authority.issue("elsewhere", hosts=["elsewhere.example"]),
        client=authority.issue("client"),
    )


def serving(issued: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    return context


async def reach(broker: FakeBroker, tls: Tls | None, *, host: str = "127.0.0.1") -> str | None:
    """The id of the cluster, if the broker can be reached like this."""
    settings = ClientSettings(
        bootstrap_servers=f"{host}:{broker.port}", security=Security(tls=tls), timeout_s=5
    )
    async with await Cluster.connect(settings) as cluster:
        return (await cluster.metadata(())).cluster_id


@running
async def test_a_broker_that_is_vouched_for_is_trusted(world: World) -> None:
    text = Pem(setting="ssl.truststore.certificates", text=world.trusted.read())
    async with FakeBroker(tls=serving(world.broker)) as broker:
        for trusted in (world.trusted, text):
            assert await reach(broker, Tls(authorities=trusted)) == "fake"


@running
async def test_the_name_of_the_host_is_sent_for_those_who_serve_several(world: World) -> None:
    context, asked = serving(world.broker), []
    context.sni_callback = lambda _, name, __: asked.append(name)
    async with FakeBroker(tls=context) as broker:
        await reach(broker, Tls(authorities=world.trusted), host="localhost")

    assert asked[0] == "localhost"


@running
async def test_another_hosts_certificate_is_refused_unless_the_check_is_off(world: World) -> None:
    tls = Tls(authorities=world.trusted)
    async with FakeBroker(tls=serving(world.elsewhere)) as broker:
        with pytest.raises(TlsFailed, match=r"not trusted .*not valid for '127\.0\.0\.1'"):
            await reach(broker, tls)

        assert await reach(broker, replace(tls, checks_host_name=False)) == "fake"


@running
async def test_without_authorities_those_of_the_system_decide(world: World) -> None:
    async with FakeBroker(tls=serving(world.broker)) as broker:
        for tls in (Tls(), Tls(checks_host_name=False)):
            with pytest.raises(TlsFailed, match="certificate is not trusted"):
                await reach(broker, tls)


@running
async def test_no_other_versions_are_spoken_than_those_that_are_set(world: World) -> None:
    context = serving(world.broker)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with FakeBroker(tls=context) as broker:
        assert await reach(broker, Tls(authorities=world.trusted, versions=("TLSv1.2",))) == "fake"

        with pytest.raises(ClientError):
            await reach(broker, Tls(authorities=world.trusted, versions=("TLSv1.3",)))


@running
async def test_tls_at_a_port_that_answers_without_it_is_a_sentence(world: World) -> None:
    # The broker takes the hello of TLS for a size that cannot be, as Kafka does, and hangs up.
    async with FakeBroker() as broker:
        with pytest.raises(Unreachable, match=r"instead of speaking TLS.* to PLAINTEXT"):
            await reach(broker, Tls(authorities=world.trusted))


# --- our own certificate ---


def in_files(world: World) -> Tls:
    return Tls(
        chain=Pem(setting="ssl.certificate.location", path=str(world.client.certificate)),
        key=Pem(setting="ssl.key.location", path=str(world.client.key)),
    )


def in_one_file(world: World) -> Tls:
    return Tls(chain=Pem(setting="ssl.keystore.location", path=str(world.client.both())))


def in_texts(world: World) -> Tls:
    return Tls(
        chain=Pem(
            setting="ssl.keystore.certificate.chain", text=world.client.certificate.read_text()
        ),
        key=Pem(setting="ssl.keystore.key", text=world.client.key.read_text()),
    )


def encrypted(world: World) -> Tls:
    key = Pem(setting="ssl.key.location", path=str(world.client.encrypted_key("hunter2")))
    return replace(in_files(world), key=key, key_password="hunter2")


@pytest.mark.parametrize("shown", [in_files, in_one_file, in_texts, encrypted])
@running
async def test_our_certificate_is_shown_to_a_broker_that_asks(
    world: World, shown: Callable[[World], Tls]
) -> None:
    context = serving(world.broker)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(world.authority.certificate)
    async with FakeBroker(tls=context) as broker:
        tls = replace(shown(world), authorities=world.trusted)

        assert await reach(broker, tls) == "fake"
        with pytest.raises(ClientError):
            await reach(broker, Tls(authorities=world.trusted))


# --- what cannot be used ---


def test_a_file_that_is_not_here_is_named_with_its_setting(tmp_path: Path) -> None:
    missing = Pem(setting="ssl.ca.location", path=str(tmp_path / "ca.pem"))

    with pytest.raises(BadSettings, match=r"ssl\.ca\.location: .*ca\.pem .* every machine"):
        Tls(authorities=missing).context()
    with pytest.raises(BadSettings, match=r"ssl\.ca\.location: .*ca\.pem cannot be read here"):
        Tls(chain=missing).context()


@pytest.mark.parametrize("text", ["", " ", "nonsense", "-----BEGIN CERTIFICATE-----\nx\n"])
def test_authorities_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadSettings, match=r"ssl\.truststore\.certificates holds no certificate"):
        Tls(authorities=Pem(setting="ssl.truststore.certificates", text=text)).context()


def test_keys_that_do_not_fit_are_refused(world: World) -> None:
    other = Pem(setting="ssl.key.location", path=str(world.broker.key))

    with pytest.raises(BadSettings, match=r"ssl\.certificate\.location and ssl\.key\.location"):
        replace(in_files(world), key=other).context()
    with pytest.raises(BadSettings, match=r"ssl\.certificate\.location cannot be used"):
        replace(in_files(world), key=None).context()


def test_an_encrypted_key_needs_its_password(world: World) -> None:
    with pytest.raises(BadSettings, match=r"encrypted: give ssl\.key\.password"):
        replace(encrypted(world), key_password=None).context()
    with pytest.raises(BadSettings, match=r"ssl\.key\.password") as caught:
        replace(encrypted(world), key_password="hunter3").context()

    assert "hunter" not in str(caught.value)
