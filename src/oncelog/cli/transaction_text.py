"""A transaction in words and as JSON: whose it is, since when, and what happens to it next."""

from datetime import UTC, datetime
from typing import Any, Final

from oncelog.client.transactions import OPEN_STATES, partitions_of
from oncelog.core.plural import plural
from oncelog.wire.messages.describe_transactions import TransactionState

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def moment(at_ms: int | None) -> str | None:
    """`2026-01-31T08:00:00.123Z`."""
    if at_ms is None or at_ms < 0:
        return None
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(length_ms: int) -> str:
    """A span in its two largest units: `2 h 5 min`."""
    rest = max(length_ms, 0) // 1000
    words: list[str] = []
    for unit, seconds in _UNITS:
        number, rest = divmod(rest, seconds)
        if number or words:
            words.append(f"{number} {unit}")
        if len(words) == 2:
            break
    return " ".join(word for word in words if not word.startswith("0 ")) or "less than 1 s"


def facts(txn: TransactionState, now_ms: int) -> dict[str, Any]:
    """What there is to know of one transactional id, as JSON shows it; None where nobody knows."""
    is_open = txn.transaction_state in OPEN_STATES and txn.transaction_start_time_ms >= 0
    started_at_ms = txn.transaction_start_time_ms if is_open else None
    is_ongoing = is_open and txn.transaction_state == OPEN_STATES[0]
    return {
        "transactional_id": txn.transactional_id,
        "state": txn.transaction_state,
        "producer_id": txn.producer_id,
        "producer_epoch": txn.producer_epoch,
        "started_at_ms": started_at_ms,
        "age_ms": None if started_at_ms is None else max(now_ms - started_at_ms, 0),
        "timeout_ms": txn.transaction_timeout_ms,
        "times_out_at_ms": (
            txn.transaction_start_time_ms + txn.transaction_timeout_ms if is_ongoing else None
        ),
        "client_id": txn.client_id or None,
        "client_host": txn.client_host or None,
        "last_heard_at_ms": txn.last_heard_time_ms if txn.last_heard_time_ms >= 0 else None,
        "partitions": len(partitions_of(txn)),
    }


def speaker(txn: TransactionState) -> str:
    """Which client it is, as far as the coordinator has heard."""
    if txn.last_heard_time_ms < 0:
        return "its client has not been heard of since the coordinator started"
    return (
        f"client {txn.client_id or 'without a name'} at {txn.client_host or 'an unknown address'}, "
        f"last heard of at {moment(txn.last_heard_time_ms)}"
    )


def outlook(txn: TransactionState, now_ms: int) -> str:
    """What happens next, and when."""
    match txn.transaction_state:
        case "Ongoing":
            due_ms = txn.transaction_start_time_ms + txn.transaction_timeout_ms
            if due_ms > now_ms:
                return (
                    f"It times out at {moment(due_ms)}, in {span(due_ms - now_ms)}: unless its "
                    "producer ends it before, it is aborted then and its producer fenced."
                )
            return f"It is overdue since {moment(due_ms)} and about to be aborted."
        case "PrepareCommit" | "PrepareAbort":
            outcome = txn.transaction_state.removeprefix("Prepare").lower()
            left = plural(len(partitions_of(txn)), "partition")
            return (
                f"It is decided: {outcome}. The coordinator writes the markers until each is "
                f"there; {left} to go."
            )
        case _:
            return "Nothing is open."
