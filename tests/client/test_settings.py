"""Settings as people write them for Kafka clients: honoured, let through, or refused in a sentence."""

import pickle

import pytest

from oncelog.client.errors import BadAddress, BadSettings
from oncelog.client.security import Credentials, Mechanism, Pem, Security, Tls
from oncelog.client.settings import ClientSettings, parse_settings

SERVERS = {"bootstrap.servers": "a:1,b:2"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
TLS = {**SERVERS, "security.protocol": "SSL"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: What consumers, producers and admin clients of Kafka 4.3 are tuned with.
TUNING = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter
    auto.offset.reset batch.size buffer.memory check.crcs client.dns.lookup client.rack
    compression.gzip.level compression.type connections.max.idle.ms delivery.timeout.ms
    enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    heartbeat.interval.ms interceptor.classes isolation.level key.deserializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records max.request.size message.max.bytes metadata.max.age.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples partitioner.class
    receive.buffer.bytes reconnect.backoff.ms retries retry.backoff.ms send.buffer.bytes
    session.timeout.ms socket.connection.setup.timeout.ms transaction.timeout.ms transactional.id
    value.deserializer socket.keepalive.enable statistics.interval.ms
"""


def test_an_address_is_enough() -> None:
    settings = parse_settings({"bootstrap.servers": " a:1,b:2 "})

    assert settings == ClientSettings(bootstrap_servers="a:1,b:2")
    assert settings.security == Security(tls=None, credentials=None)


def test_no_address_or_a_bad_one_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"bootstrap\.servers is missing"):
        parse_settings({})
    with pytest.raises(BadAddress):
        parse_settings({"bootstrap.servers": "a:b:c:d/e"})


def test_tuning_is_let_through() -> None:
    settings = parse_settings({**SERVERS, **dict.fromkeys(TUNING.split(), "1")})

    assert settings == ClientSettings(bootstrap_servers="a:1,b:2")


def test_the_name_and_the_patience_of_a_client() -> None:
    one = parse_settings({**SERVERS, "client.id": "me", "request.timeout.ms": "1500"})
    both = parse_settings(
        {**SERVERS, "request.timeout.ms": "1500", "default.api.timeout.ms": "60000"}
    )

    assert (one.client_id, one.timeout_s) == ("me", 1.5)
    assert both.timeout_s == 60


@pytest.mark.parametrize("text", ["0", "-1", "ten", "1.5", "99999999999", "¹"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match=r"request\.timeout\.ms is .*milliseconds"):
        parse_settings({**SERVERS, "request.timeout.ms": text})


# --- protocols ---


def test_a_protocol_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        BadSettings, match=r"'TLS', .* use PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    ):
        parse_settings({**SERVERS, "security.protocol": "TLS"})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("securty.protocol", "security.protocol"),
        ("bootstrap.server", "bootstrap.servers"),
        ("sals.jaas.config", "sasl.jaas.config"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_one_that_is_meant(wrong: str, meant: str) -> None:
    with pytest.raises(BadSettings, match=f"no setting {wrong}: {meant}"):
        parse_settings({**SERVERS, wrong: "SSL"})


@pytest.mark.parametrize(
    "name",
    [
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "security.providers",
        "ssl.cipher.suites",
        "ssl.engine.factory.class",
        "ssl.crl.location",
        "enable.ssl.certificate.verification",
    ],
)
def test_security_that_cannot_be_honoured_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match=f"{name} is not supported"):
        parse_settings({**SASL, name: "x"})


@pytest.mark.parametrize(
    ("protocol", "name", "needed"),
    [
        ("PLAINTEXT", "sasl.mechanism", "SASL_SSL or SASL_PLAINTEXT"),
        ("SSL", "sasl.password", "SASL_SSL or SASL_PLAINTEXT"),
        ("SASL_PLAINTEXT", "ssl.ca.location", "SSL or SASL_SSL"),
    ],
)
def test_security_that_the_protocol_would_leave_unused_is_refused(
    protocol: str, name: str, needed: str
) -> None:
    with pytest.raises(BadSettings, match=f"^{name} would do nothing .* to {needed}, or"):
        parse_settings({**SERVERS, "security.protocol": protocol, name: "hidden"})


def test_a_password_without_a_protocol_is_not_left_unused() -> None:
    with pytest.raises(BadSettings, match=r"would do nothing with security\.protocol=PLAINTEXT"):
        parse_settings({**SERVERS, "sasl.username": "a", "sasl.password": "b"})


# --- users ---


def test_a_user_in_librdkafkas_words() -> None:
    settings = parse_settings(
        {
            **SERVERS,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": " s3cret ",
        }
    )

    assert settings.security == Security(
        credentials=Credentials(
            mechanism=Mechanism.SCRAM_SHA_512, username="alice", password=" s3cret "
        )
    )


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{PLAIN_MODULE} required username="alice" password="secret";', "alice", "secret"),
        (f"{SCRAM_MODULE} required username='al ice' password='a\"b';", "al ice", 'a"b'),
        (f"{SCRAM_MODULE} required\n  username=alice\n  password=x-1_2 ;\n", "alice", "x-1_2"),
        (f'{PLAIN_MODULE} Required password="a=b;c" username="";', "", "a=b;c"),
        (rf'{PLAIN_MODULE} required username="a" password="q\"\\\t\101\z";', "a", 'q"\\\tAz'),
        (f'{PLAIN_MODULE} required username="a" password="b" user_a="b";', "a", "b"),
        (f'kafkashaded.{PLAIN_MODULE} required username = "a" password = "b";', "a", "b"),
        (f'{SCRAM_MODULE} required username="a" password="b" tokenauth=false;', "a", "b"),
        (f'{SCRAM_MODULE} required username="ä" password="пароль";', "ä", "пароль"),
    ],
)
def test_a_user_in_javas_words(text: str, username: str, password: str) -> None:
    options = {**SASL, "sasl.jaas.config": text}
    if not username:
        with pytest.raises(BadSettings, match="user name is empty"):
            parse_settings(options)
        return

    credentials = parse_settings(options).security.credentials

    assert credentials is not None
    assert (credentials.username, credentials.password) == (username, password)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read: write it as"),
        ("hunter2", "cannot be read"),
        (f'{PLAIN_MODULE} required username="a" password="hunter2"', "cannot be read"),
        (f'{PLAIN_MODULE} username="a" password="hunter2";', "cannot be read"),
        (f'{PLAIN_MODULE} required username="a" "hunter2";', "cannot be read"),
        (f'{PLAIN_MODULE} required username="a" password="hunter2;', "quote without its end"),
        (f'{PLAIN_MODULE} required password="hunter2";', "lacks the user name"),
        (f'{PLAIN_MODULE} required username="a";', "lacks the user name or the password"),
        (f'{SCRAM_MODULE} required username="a" password="hunter2" tokenauth="true";', "tokenauth"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule, which is not"),
        (f'{PLAIN_MODULE} required username="a" password="hunter2\\0";', "has a NUL"),
    ],
)
def test_what_cannot_be_read_is_refused_and_not_repeated(text: str, problem: str) -> None:
    with pytest.raises(BadSettings, match=problem) as caught:
        parse_settings({**SASL, "sasl.jaas.config": text})

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "SCRAM-SHA-1"])
def test_a_mechanism_that_we_lack_is_refused_with_those_that_we_have(mechanism: str) -> None:
    with pytest.raises(BadSettings, match="use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        parse_settings({**SASL, "sasl.mechanism": mechanism})


def test_half_a_user_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"set sasl\.username and sasl\.password"):
        parse_settings({**SASL, "sasl.username": "a"})
    with pytest.raises(BadSettings, match=r"sasl\.mechanism is missing: .* PLAIN"):
        parse_settings({**SERVERS, "security.protocol": "SASL_SSL"})


def test_what_is_said_twice_must_be_the_same() -> None:
    with pytest.raises(BadSettings, match=r"sasl\.mechanism and sasl\.mechanisms do not say"):
        parse_settings({**SASL, "sasl.mechanisms": "SCRAM-SHA-256"})
    with pytest.raises(BadSettings, match=r"Both sasl\.jaas\.config and"):
        parse_settings({**SASL, "sasl.jaas.config": "x", "sasl.password": "hunter2"})


# --- certificates ---


def test_tls_alone_trusts_the_operating_system() -> None:
    assert parse_settings(TLS).security == Security(tls=Tls())


def test_certificates_in_librdkafkas_words() -> None:
    settings = parse_settings(
        {
            **TLS,
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
            "ssl.key.password": "pw",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )

    assert settings.security.tls == Tls(
        authorities=Pem(setting="ssl.ca.location", path="/ca.pem"),
        chain=Pem(setting="ssl.certificate.location", path="/me.pem"),
        key=Pem(setting="ssl.key.location", path="/me.key"),
        key_password="pw",
        checks_host_name=False,
    )


def test_certificates_in_javas_words() -> None:
    files = parse_settings(
        {
            **TLS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.enabled.protocols": "TLSv1.2, TLSv1.1",
        }
    )
    texts = parse_settings(
        {
            **TLS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CERTS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
            "ssl.endpoint.identification.algorithm": "",
        }
    )

    assert files.security.tls == Tls(
        authorities=Pem(setting="ssl.truststore.location", path="/ca.pem"),
        chain=Pem(setting="ssl.keystore.location", path="/me.pem"),
        versions=("TLSv1.2",),
    )
    assert texts.security.tls == Tls(
        authorities=Pem(setting="ssl.truststore.certificates", text="CERTS"),
        chain=Pem(setting="ssl.keystore.certificate.chain", text="CHAIN"),
        key=Pem(setting="ssl.keystore.key", text="KEY"),
        checks_host_name=False,
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl.truststore.location": "/t.jks"}, r"keytool -exportcert .*ssl\.truststore\.type to"),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.type": "PKCS12"},
            r"openssl pkcs12 .* ssl\.keystore\.location to",
        ),
        ({"ssl.truststore.password": "hunter2"}, r"remove ssl\.truststore\.password"),
        ({"ssl.keystore.password": "hunter2"}, r"remove ssl\.keystore\.password"),
        ({"ssl.key.location": "/k"}, "without the certificate"),
        ({"ssl.ca.location": " "}, "is empty"),
        (
            {
                "ssl.ca.location": "/a",
                "ssl.truststore.location": "/b",
                "ssl.truststore.type": "PEM",
            },
            "twice",
        ),
        ({"ssl.enabled.protocols": "TLSv1,SSLv3"}, r"none of TLSv1\.2, TLSv1\.3"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "use HTTPS, NONE"),
    ],
)
def test_what_tls_cannot_use_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem) as caught:
        parse_settings({**TLS, **options})

    assert "hunter2" not in str(caught.value)


# --- travelling ---


def test_settings_travel_and_keep_their_secrets_to_themselves() -> None:
    settings = parse_settings(
        {
            **SERVERS,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "hunter2",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "chain",
            "ssl.keystore.key": "hunter2",
            "ssl.key.password": "hunter2",
        }
    )

    copy = pickle.loads(pickle.dumps(settings))

    assert copy == settings
    assert "alice" in repr(settings)
    assert "hunter2" not in repr(settings)
