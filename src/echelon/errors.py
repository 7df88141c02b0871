"""Every error Echelon raises on purpose, in one small tree.

EchelonError
├── InvalidConfig            something the user chose is not allowed
│   └── InvalidPriority      JetStream has no such priority group, or does not allow it here
├── UnknownName              a member, partition, cut, context or table that was named is not there
├── MissingComponent         a program or library that is needed is not on this machine
├── GroupError
│   ├── GroupExists          a group of that name is there, and it is another one
│   ├── GroupNotFound
│   ├── GroupDeleted         the group was deleted while it was in use
│   ├── WrongState           the group's state does not allow that now
│   ├── Unsupported          a group of this kind has no such thing
│   ├── UnknownVersion       the group speaks a newer protocol than this program
│   └── LogBroken            the group's log is not whole, or not the one that was read before
├── NotReversible            a sink cannot take back what a reset would have it take back
└── BrokerError
    ├── Unreachable          nobody answers, or not in time; trying again may help
    ├── Denied               credentials or permissions do not suffice
    ├── StreamNotFound
    ├── ConsumerNotFound     the stream has no consumer of that name, or has it no more
    ├── ConsumerExists       the stream has a consumer of that name that is configured otherwise
    ├── FilterTaken          another consumer of a work queue has one of the filters
    ├── NotPartitionable     the stream cannot be partitioned the way that was asked for
    ├── OutOfRange           a position lies outside what the stream holds
    ├── TooLarge             the broker takes no message of that size
    └── StorageFull          the broker can store no more

Each says what happened and to what; `remedy` says what to do about it.
"""


class EchelonError(Exception):
    """Base of all errors that Echelon raises on purpose."""

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}" if self.remedy else self.what


class InvalidConfig(EchelonError):
    """Something the user chose is not allowed; nothing was done."""


class InvalidPriority(InvalidConfig):
    """JetStream has no such priority group or policy, or does not allow it for this consumer; nothing was done."""


class UnknownName(EchelonError):
    """A member, partition, cut, context or table that was named is not there; nothing was done."""


class MissingComponent(EchelonError):
    """A program or library that is needed is not on this machine."""


class GroupError(EchelonError):
    """Something is wrong with a group."""


class GroupExists(GroupError):
    """A group of that name is there already, with another configuration."""


class GroupNotFound(GroupError):
    """There is no group of that name."""


class GroupDeleted(GroupError):
    """The group was deleted while it was in use."""


class WrongState(GroupError):
    """The group's state does not allow that now; nothing was done."""


class Unsupported(GroupError):
    """A group of this kind has no such thing; nothing was done."""


class UnknownVersion(GroupError):
    """The group speaks a newer version of the protocol than this program."""


class LogBroken(GroupError):
    """The group's log is not whole, or not the one that was read before."""


class NotReversible(EchelonError):
    """A sink cannot take back what a reset would have it take back; nothing was changed."""


class BrokerError(EchelonError):
    """The broker could not do what was asked."""


class Unreachable(BrokerError):
    """Nobody answers, or not in time. Trying again may help; nothing is known of what was under way."""


class Denied(BrokerError):
    """Credentials or permissions do not suffice."""


class StreamNotFound(BrokerError):
    """There is no stream (topic) of that name."""


class ConsumerNotFound(BrokerError):
    """The stream has no consumer of that name, or has it no more."""


class ConsumerExists(BrokerError):
    """The stream has a consumer of that name that is configured otherwise; nothing was done."""


class FilterTaken(BrokerError):
    """Another consumer of a work queue has one of the filters; nothing was done."""


class NotPartitionable(BrokerError):
    """The stream cannot be partitioned the way that was asked for."""


class OutOfRange(BrokerError):
    """A position lies outside what the stream holds."""

    def __init__(self, what: str, *, partition: str, position: int, first: int, end: int, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy)
        self.partition = partition
        self.position = position
        self.first = first
        self.end = end


class TooLarge(BrokerError):
    """The broker takes no message of that size; it was not stored."""


class StorageFull(BrokerError):
    """The broker can store no more; the message was not stored."""
