"""How errors of the coordinator look to those who ask it through another API (spec KIP-890)."""

from typing import Final

from oncelog.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from oncelog.wire.errors import ErrorCode, txn_error_code

PRODUCE: Final = 0
#: From this version on a batch adds its partition to the transaction by itself.
FIRST_PRODUCE_V2: Final = 12

#: What a producer is told to try again.
COORDINATOR_TROUBLE: Final = (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)


def produce_error_code(error: BrokerError, version: int) -> ErrorCode:
    """Trouble with the coordinator is disguised as something that every producer retries."""
    if isinstance(error, COORDINATOR_TROUBLE):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if isinstance(error, ConcurrentTransactions) and version < FIRST_PRODUCE_V2:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return txn_error_code(error, api_key=PRODUCE, version=version)
