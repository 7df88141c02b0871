"""Readings of many sensors, temperature and humidity, as messages of a JetStream stream."""

import asyncio
import random

import nats

from echelon.brokers.connect import open_broker

STREAM = "SENSORS"
_SENSORS = 200


async def make_stream(url: str) -> None:
    """Make the stream that takes the readings: `sensor.<number>.temp` and `sensor.<number>.humidity`."""
    client = await nats.connect(url)
    try:
        await client.jetstream().add_stream(name=STREAM, subjects=["sensor.*.*"], allow_direct=True)
    finally:
        await client.close()


async def write_readings(url: str, count: int, a_second: int) -> None:
    """Write so many readings, at about that rate."""
    chance = random.Random(1)
    async with open_broker(url) as broker:
        writer = await broker.writer()
        written = 0
        while written < count:
            some = min(a_second // 10, count - written)
            readings = [_reading(chance) for _ in range(some)]
            await asyncio.gather(*(writer.write(*reading) for reading in readings), asyncio.sleep(0.1))
            written += some


def _reading(chance: random.Random) -> tuple[str, bytes]:
    sensor = chance.randrange(_SENSORS)
    if chance.random() < 0.5:
        return f"sensor.{sensor}.temp", f"{chance.gauss(21, 4):.1f}".encode()
    return f"sensor.{sensor}.humidity", f"{chance.uniform(30, 70):.0f}".encode()
