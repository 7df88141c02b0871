"""Exactly once into SQLite: results and positions are in one file, and change in one transaction.

$ echelon create stored SENSORS --partitions 4 --start earliest --delivery exactly_once
$ python examples/exactly_once_sqlite.py

Kill it at any moment and start it again: `readings.db` has every reading once.
"""

import os
import sqlite3

from echelon.group.records import Profile
from echelon.members.options import Options
from echelon.members.sinks.sqlite import SqliteSink
from echelon.members.sync import join
from echelon.model import Message

FILE = "readings.db"


def store(message: Message, cursor: sqlite3.Cursor) -> None:
    """Write with the cursor of the transaction, which commits the position too."""
    row = (message.partition, message.sequence, message.subject, float(message.data))
    cursor.execute("INSERT INTO readings VALUES (?, ?, ?, ?)", row)


def take_back(cursor: sqlite3.Cursor, partition: str, position: int) -> None:
    """For resets: delete what was stored of a partition from a position on."""
    cursor.execute("DELETE FROM readings WHERE partition = ? AND sequence >= ?", (partition, position))


with sqlite3.connect(FILE) as connection:
    connection.execute("CREATE TABLE IF NOT EXISTS readings (partition, sequence, subject, value)")
connection.close()
join(os.environ["ECHELON_URL"], "stored", store, Profile("store"), options=Options(sink=SqliteSink(FILE, take_back)))
