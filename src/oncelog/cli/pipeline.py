"""`oncelog pipeline status|reset|forget`."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from oncelog.cli.confirm import add_yes, confirm
from oncelog.cli.failure import CommandFailed
from oncelog.cli.options import add_json
from oncelog.cli.output import as_json, table
from oncelog.cli.transaction_text import facts, moment, outlook, span, speaker
from oncelog.cli.txn import now_ms
from oncelog.cli.verbs import add_verb
from oncelog.cli.with_spark import spark_installed
from oncelog.client.cluster import Cluster
from oncelog.core.plural import plural

if TYPE_CHECKING:
    from oncelog.spark.administration import Status

SUMMARY: Final = "See how far pipelines, streaming queries and writes have come, and move them."

EXAMPLE: Final = """\
  oncelog pipeline status
  oncelog pipeline status invoicing
  oncelog pipeline reset invoicing --to earliest"""

_NAMED_ENDS: Final = {"earliest": -2, "latest": -1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments to a parser."""
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_status(verbs)
    _add_reset(verbs)
    _add_forget(verbs)


def _add_progress_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--progress-topic",
        metavar="TOPIC",
        default="oncelog-progress",
        help="where progress is committed (default: %(default)s)",
    )


@contextmanager
def _explained() -> Iterator[None]:
    """What the Spark side raises becomes a sentence."""
    with spark_installed():
        from oncelog.spark.errors import PipelineError
    try:
        yield
    except PipelineError as error:
        raise CommandFailed(str(error)) from error


# --- status ---------------------------------------------------------------------------------


def _add_status(verbs: Any) -> None:
    summary = "show position, lag, the last commit and who holds the transaction"
    example = "  oncelog pipeline status\n  oncelog pipeline status invoicing --json"
    parser = add_verb(verbs, "status", status, summary, example)
    parser.add_argument("name", nargs="?", help="a transactional id; without one all are listed")
    _add_progress_topic(parser)
    add_json(parser)


async def status(cluster: Cluster, args: argparse.Namespace) -> None:
    """Print one entry of the ledger, or a line for each."""
    with _explained():
        from oncelog.spark import administration

        if args.name is None:
            found = await administration.statuses(cluster, args.progress_topic)
            print(as_json([_facts(each) for each in found]) if args.json else _list(found))
        else:
            one = await administration.status(cluster, args.progress_topic, args.name)
            print(as_json(_facts(one)) if args.json else _as_text(one))


def _facts(status: "Status") -> dict[str, Any]:
    progress, txn = status.progress, status.transaction
    return {
        "name": status.name,
        "kind": status.kind,
        "batch": progress.batch,
        "rows": progress.rows,
        "rejected": progress.rejected,
        "total_rows": progress.total_rows,
        "committed_at_ms": progress.committed_ms,
        "lag": status.lag,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "position": place.position,
                "end": place.end,
                "lag": place.lag,
            }
            for place in status.places
        ],
        "transaction": None if txn is None else facts(txn, now_ms()),
    }


def _list(found: list["Status"]) -> str:
    header = ("NAME", "KIND", "BATCH", "ROWS IN ALL", "LAG", "COMMITTED", "TRANSACTION")
    rows = [
        (
            each.name,
            each.kind,
            each.progress.batch,
            each.progress.total_rows,
            each.lag,
            moment(each.progress.committed_ms),
            each.transaction.transaction_state if each.transaction else None,
        )
        for each in found
    ]
    return table(header, rows)


def _as_text(status: "Status") -> str:
    progress, txn = status.progress, status.transaction
    ago = span(now_ms() - progress.committed_ms)
    rejected = f", {progress.rejected:,} to the dead letters" if progress.rejected else ""
    lines = [
        f"{status.name}, a {status.kind}",
        f"Last commit: batch {progress.batch} with {plural(progress.rows, 'row')}{rejected}, at "
        f"{moment(progress.committed_ms)}, {ago} ago",
        f"In all:      {plural(progress.total_rows, 'row')}",
    ]
    if txn is not None:
        lines += [
            f"Transaction: {txn.transaction_state}, producer {txn.producer_id} epoch "
            f"{txn.producer_epoch}; {speaker(txn)}",
            f"Next:        {outlook(txn, now_ms())}",
        ]
    if status.places:
        header = ("TOPIC", "PARTITION", "POSITION", "END", "LAG")
        rows = [(p.topic, p.partition, p.position, p.end, p.lag) for p in status.places]
        lines += ["", table(header, rows)]
    return "\n".join(lines)


# --- reset ----------------------------------------------------------------------------------


def _add_reset(verbs: Any) -> None:
    summary = "let a pipeline go on from elsewhere"
    example = (
        "  oncelog pipeline reset invoicing --to earliest\n"
        '  oncelog pipeline reset invoicing --to \'{"orders": {"0": 1200, "1": -2}}\' --yes\n\n'
        "Offsets are written as Spark writes them: -2 is the earliest, -1 the latest; partitions\n"
        "that are not named stay where they are. A pipeline that runs stops."
    )
    parser = add_verb(verbs, "reset", reset, summary, example)
    parser.add_argument("name", help="a transactional id")
    parser.add_argument(
        "--to", metavar="WHERE", required=True, help="earliest, latest, or offsets in JSON"
    )
    _add_progress_topic(parser)
    add_yes(parser)


async def reset(cluster: Cluster, args: argparse.Namespace) -> None:
    """Move a pipeline, and say where it is now."""
    with _explained():
        from oncelog.spark import administration

        wanted = _wanted(args.to)
        before = await administration.status(cluster, args.progress_topic, args.name)
        position = await administration.moved(cluster, before.progress, wanted)
        confirm(
            args,
            f"Move {args.name} to {_readable(position.offsets)}? What lies between is then read "
            f"again or left out, and a pipeline that runs under this name is stopped.",
        )
        done = await administration.reset(cluster, args.progress_topic, args.name, wanted)
    print(f"{args.name} goes on from {_readable(done.offsets)}.")


def _wanted(text: str) -> Any:
    from oncelog.spark.offsets import read_offsets

    if text in _NAMED_ENDS:
        return _NAMED_ENDS[text]
    try:
        return read_offsets(json.loads(text), lowest=min(_NAMED_ENDS.values()))
    except json.JSONDecodeError as error:
        raise CommandFailed(
            f'--to {text}: say earliest, latest, or offsets like {{"orders": {{"0": 12}}}}.'
        ) from error


def _readable(offsets: Any) -> str:
    return ", ".join(f"{place} at {offset}" for place, offset in sorted(offsets.items()))


# --- forget ---------------------------------------------------------------------------------


def _add_forget(verbs: Any) -> None:
    summary = "remove what is known of a pipeline, a query or a write"
    example = "  oncelog pipeline forget invoicing"
    parser = add_verb(verbs, "forget", forget, summary, example)
    parser.add_argument("name", help="a transactional id")
    _add_progress_topic(parser)
    add_yes(parser)


async def forget(cluster: Cluster, args: argparse.Namespace) -> None:
    """Remove an entry of the ledger, once somebody has read what follows."""
    with _explained():
        from oncelog.spark import administration

        found = await administration.status(cluster, args.progress_topic, args.name)
        confirm(
            args,
            f"Forget {args.name}, {plural(found.progress.total_rows, 'row')} up to batch "
            f"{found.progress.batch}? {_what_follows(found)}",
        )
        await administration.forget(cluster, args.progress_topic, args.name)
    print(f"Forgot {args.name}. {_what_follows(found)}")


def _what_follows(status: "Status") -> str:
    if status.kind == "pipeline":
        return "The pipeline begins anew when it is started, at its startingOffsets."
    if status.kind == "write":
        return "A write with this key is made again."
    return "The query goes on only with adopt=True, or anew with a new checkpoint."
