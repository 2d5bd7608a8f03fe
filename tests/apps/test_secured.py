"""TLS and SASL: librdkafka's own settings pass through to every client of an app."""

import pytest

import oncelog
from oncelog.apps import NotAuthorised, Record
from tests.apps.conftest import make_topic, running, until, values, write
from tests.peers.secured import SecuredKafka

pytestmark = pytest.mark.peers


def an_app(kafka: SecuredKafka, name: str, wait_s: float = 30, **changed: str) -> oncelog.App:
    settings = kafka.options("SASL_SSL") | changed
    return oncelog.App(
        settings.pop("bootstrap.servers"), transactional_id=name, settings=settings, wait_s=wait_s
    )


def test_functions_and_listeners_are_let_in(secured_broker: SecuredKafka, name: str) -> None:
    servers = secured_broker.kafka.bootstrap_servers
    source, target = make_topic(servers, f"{name}-in"), make_topic(servers, f"{name}-out")
    write(servers, source, "a", "b")

    with an_app(secured_broker, name) as app:

        @app.transactional
        def place() -> None:
            app.send(target, b"from a function", key=b"0")

        @app.listener(source, group=name)
        def copy(record: Record) -> None:
            app.send(target, record.value, key=record.key)

        place()
        with running(app):
            until("both are copied", lambda: len(values(servers, target)) == 3)

    assert sorted(values(servers, target)) == [b"a", b"b", b"from a function"]


def test_a_wrong_password_is_an_error_of_its_own(secured_broker: SecuredKafka, name: str) -> None:
    app = an_app(secured_broker, name, wait_s=3, **{"sasl.password": "wrong"})
    with pytest.raises(NotAuthorised, match="invalid credentials"), app:
        pass
