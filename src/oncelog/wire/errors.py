"""The one table that knows Kafka's error numbers."""

from enum import IntEnum
from typing import Final

from oncelog.core import errors
from oncelog.core.errors import BrokerError


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as we send or understand them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    INVALID_UPDATE_VERSION = 95
    PRODUCER_FENCED = 90
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


CODES: Final[dict[type[BrokerError], ErrorCode]] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    errors.UnknownServerError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.UnsupportedSaslMechanism: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    errors.IllegalSaslState: ErrorCode.ILLEGAL_SASL_STATE,
    errors.InvalidUpdateVersion: ErrorCode.INVALID_UPDATE_VERSION,
    errors.MismatchedEndpointType: ErrorCode.MISMATCHED_ENDPOINT_TYPE,
    errors.UnsupportedEndpointType: ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    errors.ThrottlingQuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.UnknownTopicOrPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
    errors.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.TopicAlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.TopicDeletionDisabled: ErrorCode.TOPIC_DELETION_DISABLED,
    errors.TopicAuthorizationFailed: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.EligibleLeadersNotAvailable: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.NotLeaderOrFollower: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.KafkaStorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.ReassignmentInProgress: ErrorCode.REASSIGNMENT_IN_PROGRESS,
    errors.CorruptMessage: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.InvalidRequiredAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    errors.UnsupportedCompressionType: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.ProducerFenced: ErrorCode.PRODUCER_FENCED,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    errors.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.InvalidRegularExpression: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTxnState: ErrorCode.INVALID_TXN_STATE,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TransactionalIdAuthorizationFailed: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.CoordinatorLoadInProgress: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.GroupIdNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.NonEmptyGroup: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.UnknownMemberId: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.InconsistentGroupProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.FencedInstanceId: ErrorCode.FENCED_INSTANCE_ID,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.UnstableOffsetCommit: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.InvalidCommitOffsetSize: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    errors.FetchSessionIdNotFound: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    errors.InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    errors.OperationNotAttempted: ErrorCode.OPERATION_NOT_ATTEMPTED,
}


_PRODUCE: Final = 0
_FIND_COORDINATOR: Final = 10
_INIT_PRODUCER_ID: Final = 22
_ADD_PARTITIONS_TO_TXN: Final = 24
_ADD_OFFSETS_TO_TXN: Final = 25
_END_TXN: Final = 26
_TXN_OFFSET_COMMIT: Final = 28
_NEVER: Final = 1 << 15  # Produce, TxnOffsetCommit and WriteTxnMarkers never answer it

#: The first version of each API whose clients understand PRODUCER_FENCED (KIP-588).
KNOWS_PRODUCER_FENCED: Final[dict[int, int]] = {
    _INIT_PRODUCER_ID: 4,
    _ADD_PARTITIONS_TO_TXN: 2,
    _ADD_OFFSETS_TO_TXN: 2,
    _END_TXN: 2,
}

#: The first version of each API whose clients understand TRANSACTION_ABORTABLE (KIP-890).
KNOWS_TRANSACTION_ABORTABLE: Final[dict[int, int]] = {
    _PRODUCE: 11,
    _FIND_COORDINATOR: 5,
    _INIT_PRODUCER_ID: 5,
    _ADD_PARTITIONS_TO_TXN: 5,
    _ADD_OFFSETS_TO_TXN: 4,
    _END_TXN: 4,
    _TXN_OFFSET_COMMIT: 4,
}


def error_code(error: BrokerError) -> ErrorCode:
    """The number for an error."""
    return CODES[type(error)]


def txn_error_code(error: BrokerError, *, api_key: int, version: int) -> ErrorCode:
    """The number for an error of a transaction, as far as this version's clients understand it."""
    code = error_code(error)
    if code is ErrorCode.PRODUCER_FENCED and version < KNOWS_PRODUCER_FENCED.get(api_key, _NEVER):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_TRANSACTION_ABORTABLE.get(
        api_key, _NEVER
    ):
        return ErrorCode.INVALID_TXN_STATE
    return code
