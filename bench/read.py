"""Reading ranges and following logs on both brokers: the rows of `read_nats.py` and `read_kafka.py` in one run."""

import read_kafka
import read_nats
from report import Row, main


def run() -> list[Row]:
    """All rows."""
    return [*read_nats.run(), *read_kafka.run()]


if __name__ == "__main__":
    main(run)
