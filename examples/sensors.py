"""Makes the stream or topic SENSORS and writes readings of four sensors into it, for the other examples.

$ python examples/sensors.py 100

With `--broken` one reading more is written that is no number.
"""

import asyncio
import os
import sys

URL = os.environ.get("ECHELON_URL", "nats://localhost:4222")
Reading = tuple[int, bytes]


async def to_nats(readings: list[Reading]) -> None:
    """Publish them on subjects such as `sensor.1.temp`."""
    import nats
    from nats.js.api import StreamConfig

    client = await nats.connect(URL)
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name="SENSORS", subjects=["sensor.*.*"], allow_direct=True))
    for sensor, data in readings:
        await jetstream.publish(f"sensor.{sensor}.temp", data)
    await client.close()


def to_kafka(readings: list[Reading]) -> None:
    """Produce them with the sensor as key."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": URL.removeprefix("kafka://")}
    admin = AdminClient(servers)
    if "SENSORS" not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic("SENSORS", 4, 1)])["SENSORS"].result()
    producer = Producer(servers)
    for sensor, data in readings:
        producer.produce("SENSORS", data, str(sensor))
    producer.flush()


if __name__ == "__main__":
    readings = [(number % 4, f"{20 + number % 10}.5".encode()) for number in range(int(sys.argv[1]))]
    if "--broken" in sys.argv:
        readings.append((1, b"no idea"))
    if URL.startswith("kafka://"):
        to_kafka(readings)
    else:
        asyncio.run(to_nats(readings))
    print(f"wrote {len(readings)} readings")
