"""Drawing a plan from a seed: which clients, which settings, and which faults when.

A run is cut into periods. A quarter of them are quiet; in each of the others some kinds of faults
are on and most are off, so that over many seeds rare mixes come together.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from oncelog.testing.sim.plan import ACKS_ALL, ClientPlan, Fault, Plan, Role, What
from oncelog.testing.sim.steps import Step

PARTITIONS: Final = 2
#: How long a period takes, in virtual seconds.
PERIOD_S: Final = 3.0
HASTY_PERIOD_S: Final = 1.0
QUIET: Final = 0.25
#: How likely a run is one of those in which the broker lives to the end.
LASTING: Final = 0.2
#: Faults that end the broker.
ENDING: Final = frozenset(
    {What.CRASH, What.KILL, What.STOP, What.ROT, What.SYNC_ERROR, What.WRITE_ERROR}
)
#: How likely a run is one of those whose writers do not rest.
HASTY: Final = 2 / 3
#: How likely a run is one with `flush=os`, in which processes die and the power stays.
UNSYNCED: Final = 0.1
#: How likely each kind of fault is on in a period that is not quiet.
IS_ON: Final = 0.25
#: Roughly how many steps of each kind one operation of a client takes.
STEPS_OF_OPERATION: Final = {Step.TURN: 100, Step.DISK: 40, Step.NET: 25}
HASTY_STEPS_OF_OPERATION: Final = {Step.TURN: 40, Step.DISK: 20, Step.NET: 9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much happens in a run."""

    producers: int = 2
    members: int = 2
    batches: int = 12
    crashes: int = 3
    #: Transactional producers; some of them share their transactional id and fence each other.
    txn_producers: int = 0
    transactions: int = 8
    #: Members of a second group that copy what they read, in transactions.
    copiers: int = 0
    watchers: int = 1
    janitors: int = 0
    builders: int = 0
    ghosts: int = 0
    #: Whether those who write do not rest in between.
    is_hasty: bool = False
    #: Without restarts connections live long, and what is late still finds those it was meant for.
    restarts: bool = True
    #: How long faults are injected, in virtual seconds.
    faults_s: float = 9.0


#: Plain producers and a plain group.
PLAIN: Final = Shape()
#: Transactions of all kinds beside a plain producer and a plain group.
TRANSACTIONAL: Final = Shape(
    producers=1, members=1, batches=4, txn_producers=3, copiers=2, janitors=1, ghosts=1
)


def draw_plan(seed: int, shape: Shape | None = None) -> Plan:
    """The plan of a seed; without a shape that is drawn as well."""
    rng = Random(f"{seed} plan")
    is_shaped = shape is not None
    shape = shape or draw_shape(rng)
    clients = _clients(rng, shape)
    plan = Plan(
        seed=seed,
        settings=_settings(rng),
        clients=clients,
        faults=_faults(rng, shape, clients),
        sync_s=rng.choice((0.001, 0.005, 0.02) if shape.is_hasty else (0.001, 0.02, 0.1)),
        shuffles=rng.random() < 0.7,
        expires=rng.random() < 0.3,
        flips=rng.choice((0, 0, 0, 1, 2)),
    )
    return plan if is_shaped or rng.random() >= UNSYNCED else _unsynced(plan)


def _unsynced(plan: Plan) -> Plan:
    """The same without waiting for the disk: a sync that fails would lose what was acknowledged."""
    return replace(
        plan,
        settings={**plan.settings, "oncelog.flush": "os"},
        faults=tuple(fault for fault in plan.faults if fault.what is not What.SYNC_ERROR),
    )


def draw_shape(rng: Random) -> Shape:
    """How much happens in a run that nobody has shaped."""
    is_hasty = rng.random() < HASTY
    if rng.random() < 0.2:
        shape = replace(PLAIN, producers=rng.randint(1, 3), batches=rng.randint(6, 20))
    else:
        shape = _draw_transactional(rng)
    shape = replace(shape, restarts=rng.random() >= LASTING)
    if not is_hasty:
        return shape
    return replace(
        shape,
        is_hasty=True,
        batches=rng.randint(20, 50),
        transactions=rng.randint(40, 150),
        crashes=rng.randint(1, 4),
        # About as long as they are at work.
        faults_s=rng.uniform(2, 7),
    )


def _draw_transactional(rng: Random) -> Shape:
    return Shape(
        producers=rng.randint(0, 2),
        members=rng.randint(0, 2),
        batches=rng.randint(3, 10),
        crashes=rng.randint(0, 3),
        txn_producers=rng.randint(1, 5),
        transactions=rng.randint(5, 20),
        copiers=rng.randint(0, 3),
        watchers=rng.randint(0, 1),
        janitors=rng.randint(0, 1),
        builders=int(rng.random() < 0.2),
        ghosts=int(rng.random() < 0.3),
        faults_s=rng.uniform(4, 15),
    )


def _settings(rng: Random) -> dict[str, str]:
    return {
        "log.segment.bytes": str(rng.choice((1024, 4096, 1 << 20))),
        "log.index.interval.bytes": str(rng.choice((0, 256, 4096))),
        "num.partitions": str(PARTITIONS),
        "offsets.topic.num.partitions": str(rng.choice((1, 3))),
        "transaction.state.log.num.partitions": str(rng.choice((1, 3))),
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 300))),
        "group.min.session.timeout.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((50, 200, 5000))),
        "log.retention.ms": "-1",
        "log.retention.check.interval.ms": str(rng.choice((500, 60_000))),
        "connections.max.idle.ms": str(rng.choice((10_000, 600_000))),
        "oncelog.shard.rewrite.bytes": str(rng.choice((2048, 1 << 20))),
        "oncelog.transaction.busy.wait.ms": str(rng.choice((0, 300, 5000))),
    }


def _clients(rng: Random, shape: Shape) -> tuple[ClientPlan, ...]:
    counts = {
        Role.PRODUCER: (shape.producers, shape.batches),
        Role.MEMBER: (shape.members, 0),
        Role.WRITER: (shape.txn_producers, shape.transactions),
        Role.COPIER: (shape.copiers, 0),
        Role.WATCHER: (shape.watchers, 0),
        Role.JANITOR: (shape.janitors, 3),
        Role.BUILDER: (shape.builders, 4),
        Role.GHOST: (shape.ghosts, 12),
    }
    clients = []
    for role, (count, operations) in counts.items():
        for index in range(count):
            # Writers of one id fence each other.
            shared = index // 2 if role is Role.WRITER and rng.random() < 0.5 else index
            clients.append(
                ClientPlan(
                    name=f"{role}-{index}",
                    role=role,
                    operations=operations,
                    patience_s=rng.choice((1.0, 3.0, 8.0)),
                    transactional_id=f"{role}-{shared}",
                    is_v2=rng.random() < 0.5,
                    timeout_ms=rng.choice((1_500, 5_000, 15_000)),
                    acks=rng.choice((ACKS_ALL, ACKS_ALL, ACKS_ALL, 1, 0)),
                    is_hasty=shape.is_hasty,
                    abandons=rng.random() < 0.1,
                )
            )
    return tuple(clients)


# --- faults ----------------------------------------------------------------------------------------


def _faults(rng: Random, shape: Shape, clients: tuple[ClientPlan, ...]) -> tuple[Fault, ...]:
    names = [client.name for client in clients]
    period_s = HASTY_PERIOD_S if shape.is_hasty else PERIOD_S
    faults = []
    if shape.restarts:
        at_steps = rng.choice((0, 1, 1, 2))
        if shape.is_hasty:
            at_steps += shape.crashes  # Much happens within a millisecond, and steps are where.
        else:
            times = [rng.uniform(0.05, shape.faults_s) for _ in range(shape.crashes)]
            faults += [_crash(rng, at, period_s) for at in times]
        faults += _at_steps(rng, at_steps, shape, clients, period_s)
    start = 0.0
    while start < shape.faults_s:
        if rng.random() >= QUIET:
            for what in What:
                if rng.random() < IS_ON and (shape.restarts or what not in ENDING):
                    faults.append(
                        _draw(rng, what, start + rng.uniform(0, period_s), names, period_s)
                    )
        start += period_s
    return tuple(sorted(faults, key=lambda fault: (fault.step or "", fault.at)))


def _crash(rng: Random, at: float, period_s: float, step: Step | None = None) -> Fault:
    # A second one during recovery must change nothing.
    again = rng.choice((0, 0, 0, 1, 3, 10, 30))
    what = rng.choice((What.CRASH, What.CRASH, What.KILL))
    return Fault(what=what, at=at, step=step, for_s=_down_s(rng, period_s), amount=again)


def _down_s(rng: Random, period_s: float) -> float:
    return rng.uniform(0.01, period_s / 3)


def _at_steps(
    rng: Random, count: int, shape: Shape, clients: tuple[ClientPlan, ...], period_s: float
) -> list[Fault]:
    """Crashes right after a step, anywhere in the run: at every await, over many seeds."""
    steps = HASTY_STEPS_OF_OPERATION if shape.is_hasty else STEPS_OF_OPERATION
    operations = sum(client.operations for client in clients)
    found = []
    for _ in range(count):
        step = rng.choice((Step.DISK, *Step))
        last = 50 + operations * steps[step]
        found.append(_crash(rng, rng.randint(1, last), period_s, step))
    return found


def _draw(rng: Random, what: What, at: float, names: list[str], period_s: float) -> Fault:
    target = rng.choice(names)
    lasts = period_s * rng.choice((0.03, 0.2, 0.7, 1.5)) * rng.uniform(0.5, 1)
    match what:
        case What.CRASH | What.KILL:
            return _crash(rng, at, period_s)
        case What.STOP:
            cut_short = rng.choice((0, 0, 1, 3, 8, 20))
            return Fault(what=what, at=at, for_s=_down_s(rng, period_s), amount=cut_short)
        case What.ROT | What.SYNC_ERROR | What.WRITE_ERROR:
            return Fault(what=what, at=at, for_s=rng.uniform(0.1, 1))
        case What.FULL | What.REPEAT:
            return Fault(what=what, at=at, for_s=lasts)
        case What.SLOW_SYNC:
            return Fault(what=what, at=at, for_s=lasts, amount=rng.choice((0.05, 0.5, 2.0)))
        case What.DELAY:
            return Fault(what=what, at=at, for_s=lasts, amount=rng.choice((0.05, 0.5, 3.0)))
        case What.PIECES:
            return Fault(what=what, at=at, for_s=lasts, amount=rng.choice((1, 7, 50)))
        case What.CUT | What.RESET | What.HANG_UP:
            return Fault(what=what, at=at, target=rng.choice(("", target)))
        case What.MUTE:
            return Fault(what=what, at=at, amount=rng.randint(1, 3), target=target)
        case What.CUT_OFF | What.PAUSE:
            return Fault(what=what, at=at, for_s=lasts, target=target)
        case What.HOLD:
            # For longer than some are patient: they go on while what they sent is still under way.
            return Fault(what=what, at=at, for_s=rng.uniform(0.5, 5), target=target)
        case What.CLOCK:
            return Fault(what=what, at=at, amount=rng.choice((-1800, -10, -0.2, 0.2, 10, 1800)))
