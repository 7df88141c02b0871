"""Makes the stream SENSORS and writes readings of four sensors into it, for the other examples.

$ python examples/sensors.py 100

With `--broken` one reading more is written that is no number.
"""

import asyncio
import os
import sys

import nats
from nats.js.api import StreamConfig

URL = os.environ.get("ECHELON_URL", "nats://localhost:4222")


async def main(count: int, *, broken: bool) -> None:
    """Write so many readings: `sensor.<number>.temp`, a sensor after the other."""
    client = await nats.connect(URL)
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name="SENSORS", subjects=["sensor.*.*"], allow_direct=True))
    for number in range(count):
        await jetstream.publish(f"sensor.{number % 4}.temp", f"{20 + number % 10}.5".encode())
    if broken:
        await jetstream.publish("sensor.1.temp", b"no idea")
    await client.close()
    print(f"wrote {count + broken} readings")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), broken="--broken" in sys.argv))
