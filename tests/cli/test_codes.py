"""Exit codes that need a broker in a bad way: not permitted, a log that is broken, a newer protocol."""

import asyncio
import json

import msgspec
import nats

from echelon.cli.exits import exit_code
from echelon.errors import ConsumerExists, ConsumerNotFound, FilterTaken
from tests.brokers.nats.harness import call
from tests.cli.place import Place, invoke
from tests.servers import NatsServers


def test_who_is_not_let_in_is_told_so_without_the_password(nats_servers: NatsServers) -> None:
    server = nats_servers(config="authorization { user: alice, password: wonderland }")
    address = server.url.removeprefix("nats://").rpartition("@")[2]
    failed = invoke("--broker", f"nats://alice:looking-glass@{address}", "ls", code=6)
    assert failed.err.startswith("error: ")
    assert "looking-glass" not in failed.err
    assert "Traceback" not in failed.err


def test_a_log_without_its_beginning_is_told_and_listed_as_broken_and_deleted(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    place.echelon("pause", group)
    [first, *_] = [row["sequence"] for row in place.rows("history", group)]
    asyncio.run(call(place.url, "STREAM.MSG.DELETE.ECHELON", {"seq": first}))
    for words in (("info", group), ("history", group), ("why", group, "0"), ("resume", group)):
        failed = place.echelon(*words, code=8)
        assert "not whole" in failed.err
        assert "Traceback" not in failed.err
    [row] = [row for row in place.rows("ls") if row["group"] == group]
    assert (row["state"], row["membership"]) == ("broken", None)
    assert ["BROKEN" in line for line in place.table("ls") if line[0] == group] == [True]
    assert "whose log is broken" in place.echelon("rm", group, given="n\n", code=10).err
    assert group in place.echelon("ls", "-n").out
    place.echelon("rm", group, "--force")
    assert group not in place.echelon("ls", "-n").out
    place.echelon("rm", group, "--force", code=3)


def test_a_group_of_a_newer_protocol_is_told(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    asyncio.run(_write_newer(place.url, group))
    failed = place.echelon("info", group, code=8)
    assert "protocol" in failed.err
    assert "Traceback" not in failed.err


async def _write_newer(url: str, group: str) -> None:
    """Replace the group's configuration by one of a version to come, as a newer program would."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        old = await js.get_last_msg("ECHELON", f"echelon.log.{group}.admin")
        record = json.loads(old.data or b"")
        record |= {"version": 99, "replaces": old.seq, "counter": record["counter"] + 1, "read": old.seq}
        await js.publish(f"echelon.log.{group}.admin", msgspec.json.encode(record))
    finally:
        await client.close()


def test_errors_of_consumers_have_codes() -> None:
    assert [exit_code(kind("")) for kind in (ConsumerNotFound, ConsumerExists, FilterTaken)] == [3, 4, 4]
