"""What a client must be told. One class for each meaning; `wire/errors.py` knows the numbers.

Each docstring says what the client may conclude: nothing was written, it was written, or nobody
knows and it has to ask again.
"""


class BrokerError(Exception):
    """A request that cannot be served as asked."""


class ConnectionSuperseded(Exception):
    """The request came too late, on a connection that its client has given up: it ends unanswered."""


# --- requests -------------------------------------------------------------------------------


class InvalidRequest(BrokerError):
    """The fields contradict each other. Nothing was written."""


class UnsupportedVersion(BrokerError):
    """The API or its version is not offered. Nothing was written."""


class UnknownServerError(BrokerError):
    """The broker failed in a way that it did not foresee. The outcome is unknown."""


class RequestTimedOut(BrokerError):
    """The time given ran out. The outcome is unknown."""


class InvalidConfig(BrokerError):
    """A setting is unknown or its value is out of range. Nothing was written."""


class PolicyViolation(BrokerError):
    """A limit of this broker forbids it. Nothing was written."""


class UnsupportedSaslMechanism(BrokerError):
    """This listener offers no SASL mechanism."""


class IllegalSaslState(BrokerError):
    """Authentication was attempted where none is expected."""


class InvalidUpdateVersion(BrokerError):
    """A feature that is not known, or a level that it cannot have. Nothing was written."""


class MismatchedEndpointType(BrokerError):
    """The request is for a controller, and this is a broker."""


class UnsupportedEndpointType(BrokerError):
    """There is no such kind of endpoint."""


class ThrottlingQuotaExceeded(BrokerError):
    """Too much at once. Nothing was written; try again later."""


# --- topics and partitions ------------------------------------------------------------------


class UnknownTopicOrPartition(BrokerError):
    """There is no such topic or partition here. Nothing was written."""


class UnknownTopicId(BrokerError):
    """No topic has this id, or its name belongs to another one now. Nothing was written."""


class InconsistentTopicId(BrokerError):
    """The id and the name of a topic do not belong together."""


class InvalidTopic(BrokerError):
    """A name that no topic may have, or a topic that is not for clients. Nothing was written."""


class TopicAlreadyExists(BrokerError):
    """The topic exists. Nothing was written."""


class InvalidPartitions(BrokerError):
    """A partition count that cannot be. Nothing was written."""


class InvalidReplicationFactor(BrokerError):
    """More replicas than brokers. Nothing was written."""


class InvalidReplicaAssignment(BrokerError):
    """An assignment that names other brokers than there are. Nothing was written."""


class TopicDeletionDisabled(BrokerError):
    """This broker does not delete topics (delete.topic.enable). Nothing was deleted."""


class TopicAuthorizationFailed(BrokerError):
    """Not allowed on this topic. Nothing was written."""


class ElectionNotNeeded(BrokerError):
    """The preferred leader leads already."""


class PreferredLeaderNotAvailable(BrokerError):
    """The preferred leader cannot lead: its log is offline."""


class EligibleLeadersNotAvailable(BrokerError):
    """No replica at all can lead: every log is offline."""


class NoReassignmentInProgress(BrokerError):
    """There is nothing to cancel."""


class NotLeaderOrFollower(BrokerError):
    """This broker does not lead the partition now. The outcome is unknown."""


class FencedLeaderEpoch(BrokerError):
    """The client knows an older leader epoch than the broker."""


class UnknownLeaderEpoch(BrokerError):
    """The client knows a newer leader epoch than the broker."""


class KafkaStorageError(BrokerError):
    """The log is offline, or a write failed. The outcome is unknown."""


class OffsetOutOfRange(BrokerError):
    """The offset is below the log start or beyond the end."""


class ReassignmentInProgress(BrokerError):
    """The partition is being moved. Nothing was written."""


# --- record batches -------------------------------------------------------------------------


class CorruptMessage(BrokerError):
    """The checksum does not hold, or the batch is cut. Nothing was written."""


class InvalidRecord(BrokerError):
    """A well-formed batch that no client may send. Nothing was written."""


class MessageTooLarge(BrokerError):
    """The batch is above the topic's limit. Nothing was written."""


class InvalidTimestamp(BrokerError):
    """A timestamp too far from the broker's clock. Nothing was written."""


class InvalidRequiredAcks(BrokerError):
    """acks is none of -1, 0, 1. Nothing was written."""


class UnsupportedCompressionType(BrokerError):
    """The codec is newer than the request's version. Nothing was written."""


# --- producers ------------------------------------------------------------------------------


class OutOfOrderSequence(BrokerError):
    """A gap, or a repeat older than the window. Nothing was written by this request."""


class InvalidProducerEpoch(BrokerError):
    """A newer instance of this producer exists. Nothing was written by this request."""


class ProducerFenced(BrokerError):
    """A newer instance has this transactional id. Nothing was written: stop."""


class ConcurrentTransactions(BrokerError):
    """The last transaction is still being completed; ask again. Nothing was written."""


class TransactionAbortable(BrokerError):
    """Nothing was written; abort the transaction and go on with the next one."""


class TransactionCoordinatorFenced(BrokerError):
    """A marker of a coordinator that has been replaced. Nothing was written."""


class TransactionalIdNotFound(BrokerError):
    """No such transactional id is known."""


class InvalidRegularExpression(BrokerError):
    """A pattern that cannot be read."""


class InvalidProducerIdMapping(BrokerError):
    """The transactional id does not have this producer id. Nothing was written."""


class InvalidTxnState(BrokerError):
    """The protocol has no such step here. Nothing was written."""


class InvalidTransactionTimeout(BrokerError):
    """A timeout of zero or above the maximum. Nothing was written."""


class TransactionalIdAuthorizationFailed(BrokerError):
    """Not allowed to use this transactional id. Nothing was written."""


# --- coordinators and groups ----------------------------------------------------------------


class CoordinatorLoadInProgress(BrokerError):
    """The coordinator is replaying its log; ask again. Nothing was written."""


class CoordinatorNotAvailable(BrokerError):
    """There is no coordinator right now; look it up again. Nothing was written."""


class NotCoordinator(BrokerError):
    """Another broker coordinates this; look it up again. Nothing was written."""


class InvalidGroupId(BrokerError):
    """A group id that no group may have."""


class GroupIdNotFound(BrokerError):
    """There is no such group."""


class NonEmptyGroup(BrokerError):
    """The group still has members. Nothing was deleted."""


class GroupSubscribedToTopic(BrokerError):
    """A member is subscribed to the topic; its offsets stay."""


class GroupMaxSizeReached(BrokerError):
    """The group takes no further members."""


class UnknownMemberId(BrokerError):
    """The group has no such member: it was removed, or never joined. Nothing was written."""


class MemberIdRequired(BrokerError):
    """Join again with the member id in the reply (KIP-394)."""


class IllegalGeneration(BrokerError):
    """The group is at another generation. Nothing was written."""


class RebalanceInProgress(BrokerError):
    """The group is between two generations: join again."""


class InconsistentGroupProtocol(BrokerError):
    """The member shares no assignment protocol with the group."""


class InvalidSessionTimeout(BrokerError):
    """A session timeout outside the broker's limits."""


class FencedInstanceId(BrokerError):
    """Another member has taken this group.instance.id. Nothing was written."""


class OffsetMetadataTooLarge(BrokerError):
    """The commit's metadata is above the limit. Nothing was written for that partition."""


class UnstableOffsetCommit(BrokerError):
    """A transaction over this offset is undecided; ask again."""


class StaleMemberEpoch(BrokerError):
    """The member's epoch is not the current one (KIP-848)."""


class InvalidCommitOffsetSize(BrokerError):
    """The commit does not fit into one record batch. Nothing was written."""


class FetchSessionIdNotFound(BrokerError):
    """The fetch session was dropped: open a new one."""


class InvalidFetchSessionEpoch(BrokerError):
    """A fetch of this session was missed or repeated: open a new session."""


class OperationNotAttempted(BrokerError):
    """Another part of the same request failed first. Nothing was written."""
