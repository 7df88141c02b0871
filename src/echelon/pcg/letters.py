"""Dead letters of JetStream-native groups: where, and as, those of other groups are."""

from types import TracebackType
from typing import Self

from echelon.members.dead_letter import DeadLetter
from echelon.model import Message
from echelon.pcg.found import Found
from echelon.pcg.groups import Groups


class DeadLetters:
    """Writes the dead letters of a group to the subject `echelon.dead.<stream>-<group>`.

    An async context manager; it is entered only where dead letters are wanted.
    """

    def __init__(self, groups: Groups, found: Found) -> None:
        self._broker = groups.broker()
        self._group = f"{found.stream}-{found.name}"
        self._consumed = found.consumed
        self._groups = groups

    async def __aenter__(self) -> Self:
        await self._broker.__aenter__()
        await self._broker.prepare_outlets(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._broker.__aexit__(kind, error, trace)

    async def bury(self, message: Message, error: Exception, attempts: int) -> None:
        """Store the message as a dead letter."""
        # The sequence belongs to the stream as it is now: one that is made anew counts from 1.
        made = (await self._groups.consumers.details(self._consumed)).created
        identity = f"{self._group}-{made}-{message.sequence}"
        subject, writer = self._broker.dead_letters(self._group), await self._broker.writer()
        await DeadLetter(self._group, message, error, attempts).write(writer, subject, identity)
