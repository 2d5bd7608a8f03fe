"""The examples, as people start them, and the command that runs an app."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import oncelog
from oncelog.apps import Counts
from oncelog.cli.app import line
from oncelog.cli.main import main
from tests.apps.conftest import make_topic, until, values, write
from tests.client import aftermath

ROOT = Path(__file__).parents[2]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with oncelog.Broker() as broker:
        monkeypatch.setenv("ONCELOG_BOOTSTRAP", broker.bootstrap_servers)
        for topic in ("orders", "payments", "invoices", "orders-dead"):
            make_topic(broker.bootstrap_servers, topic)
        yield broker.bootstrap_servers


def test_orders_are_placed_in_two_topics_or_not_at_all(servers: str) -> None:
    def place(total: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "examples/place_orders.py", "ada", total]
        return subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    good, bad = place("12.5"), place("0")

    assert (good.returncode, bad.returncode) == (0, 1)
    assert "0.0 is no price" in bad.stderr
    order_id = good.stdout.strip()
    assert good.stderr == f"order {order_id} is placed\n"
    (order,), (payment,) = values(servers, "orders"), values(servers, "payments")
    assert json.loads(order) == {"id": order_id, "customer": "ada", "total": 12.5}
    assert json.loads(payment) == {"order": order_id, "total": 12.5}


def test_orders_are_billed_by_a_service_that_a_signal_stops(servers: str) -> None:
    orders = [json.dumps({"id": str(n), "customer": "ada", "total": 10.0}) for n in range(9)]
    write(servers, "orders", *orders, "no order")
    # A terminal for its standard error: there the lines are alive.
    ours, theirs = pty.openpty()
    service = subprocess.Popen(
        [sys.executable, "-m", "oncelog", "app", "run", "examples/bill_orders.py:app"],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    try:
        until(
            "all is billed",
            lambda: sum(aftermath.committed(servers, "billing", "orders").values()) == 10,
        )
        seen = os.read(ours, 100_000).decode()
        service.send_signal(signal.SIGTERM)
        said, _ = service.communicate(timeout=30)
    finally:
        service.kill()
        service.wait()
        os.close(ours)

    assert service.returncode == 0
    assert said.startswith("bill · 10 records · 1 dead letter · ")
    assert "bill · " in seen
    assert "a record became a dead letter" in seen
    assert len(values(servers, "invoices")) == 9
    assert values(servers, "orders-dead") == [b"no order"]


SERVICE = """
import oncelog
app = oncelog.App("{servers}", transactional_id="greeter")

@app.listener("names", group="greeters")
def greet(record):
    app.send("greetings", f"hello {{record.text}}")
"""


def test_ctrl_c_ends_a_service_in_order(servers: str, tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text(SERVICE.format(servers=servers))
    make_topic(servers, "greetings")
    write(servers, make_topic(servers, "names"), "ada")
    service = subprocess.Popen(
        [sys.executable, "-m", "oncelog", "app", "run", "greeter:app"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until("it is done", lambda: aftermath.committed(servers, "greeters", "names") == {0: 1})
        service.send_signal(signal.SIGINT)
        said, complained = service.communicate(timeout=30)
    finally:
        service.kill()
        service.wait()

    assert service.returncode == 0
    assert said.startswith("greet · 1 record · 1 transaction · 0 aborts · ")
    assert "Traceback" not in complained
    assert values(servers, "greetings") == [b"hello ada"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("billing", "write it as MODULE:APP"),
        ("nothing_like_it:app", "There is no module nothing_like_it"),
        ("nothing.py:app", "There is no file nothing.py"),
        ("good.py:other", "good.py has no app 'other': its apps are app"),
        ("none.py:app", "there is no oncelog.App in it"),
        ("broken.py:app", "broken.py cannot be imported"),
        ("lacking.py:app", "imports nothing_like_it, which is not there"),
        ("good.py:app", "has no listener"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(
    target: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("good", "none", "broken", "lacking"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "good.py").write_text(
        "import oncelog\napp = oncelog.App('127.0.0.1:1', transactional_id='t')\n"
    )
    (tmp_path / "none.py").write_text("")
    (tmp_path / "broken.py").write_text("def\n")
    (tmp_path / "lacking.py").write_text("import nothing_like_it\n")

    assert main(["app", "run", target]) == 1

    said = capsys.readouterr().err
    assert said.startswith("oncelog: ")
    assert sentence in said


def test_the_line_of_a_listener() -> None:
    counts = Counts(records=1200, transactions=1, aborts=2, dead_letters=3, lag=4000)

    assert line("bill", counts) == (
        "bill · 1,200 records · 3 dead letters · 1 transaction · 2 aborts · lag 4,000"
    )
    assert line("bill", Counts(records=1)) == (
        "bill · 1 record · 0 transactions · 0 aborts · lag 0"
    )
