"""A lock between programs on this machine. The system releases it when its holder dies."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def locked(file: Path, *, waiting_for: str) -> Iterator[None]:
    """Hold the lock on `file`, which is made if need be. Blocks while another holds it, and says so in the log."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("Waiting for another program that %s", waiting_for)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
