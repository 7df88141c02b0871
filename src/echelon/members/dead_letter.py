"""Dead letters: messages that handlers gave up on, with where they came from and why they failed, in headers."""

from echelon.brokers.base import Writer
from echelon.errors import InvalidConfig, TooLarge
from echelon.model import Message, publishers_headers


class DeadLetter:
    """A message that is to be a dead letter of a group."""

    def __init__(self, group: str, message: Message, error: Exception, attempts: int) -> None:
        self.message = message
        self.headers = {
            "echelon-group": group,
            "echelon-partition": message.partition,
            "echelon-sequence": str(message.sequence),
            "echelon-subject": message.subject,
            "echelon-error": repr(error)[:1000],
            "echelon-attempts": str(attempts),
        }

    async def write(self, writer: Writer, subject: str, identity: str) -> None:
        """Store it, with the publisher's headers if the broker takes them. Raises what `Writer.write` raises.

        By them it can be published anew when its stream does not hold the message any longer.
        """
        message, headers = self.message, publishers_headers(self.message) | self.headers
        try:
            await writer.write(subject, message.data, key=message.key, headers=headers, id=identity)
        except (TooLarge, InvalidConfig):
            await writer.write(subject, message.data, key=message.key, headers=self.headers, id=identity)
