"""Whether a partition's position still lies in what its stream holds."""

import logging

from echelon.brokers.base import StreamInfo
from echelon.errors import OutOfRange
from echelon.group.config import Config
from echelon.group.own import Run

logger = logging.getLogger(__name__)


def stay_in_range(config: Config, name: str, info: StreamInfo, run: Run) -> None:
    """Raise OutOfRange unless the run stands where the stream has messages, or will have the next.

    If the group goes on from the earliest, a run that lies before that is moved there. A stream that was made anew, or
    that ends before the position, is never waited for.
    """
    stream, number = config.locate(name)
    bounds = info.bounds[number]
    problem = ""
    if stream.identity and info.identity != stream.identity:
        problem = f"the stream {stream.name} was made anew: positions in the former one mean nothing in it"
    elif run.position > bounds.end:
        problem = f"partition {name} ends at {bounds.end}, before the position {run.position}"
    elif run.position < bounds.first:
        problem = f"messages {run.position} to {bounds.first - 1} of partition {name} are no longer in the stream"
        if config.out_of_range == "earliest":
            logger.warning("%s; going on at %d", problem, bounds.first)
            run.position = bounds.first
            return
    if problem:
        raise OutOfRange(
            problem,
            partition=name,
            position=run.position,
            first=bounds.first,
            end=bounds.end,
            remedy="Reset the group to positions that the stream holds, or make it anew",
        )
