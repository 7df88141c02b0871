"""What of a batch that Spark repeats is read again, and where a partition goes on that came to the seat."""

from echelon.group.config import Delivery
from echelon.group.own import Run
from echelon.group.world import Partition, World
from echelon.spark.batch import Stretch
from echelon.spark.ledger import Ledger
from echelon.spark.share import Share


def partition(name: str = "0", *, epoch: int = 12, before: int = 5, position: int = 1, **fields: object) -> Partition:
    found = Partition(name, position, position, epoch=epoch, before=before)
    for field, value in fields.items():
        setattr(found, field, value)
    return found


class Scene:
    """A ledger over the shares of these partitions."""

    def __init__(self, *partitions: Partition, delivery: Delivery = "at_least_once", stateful: bool = False) -> None:
        self.world = World(partitions={each.name: each for each in partitions})
        self.shares: dict[str, Share] = {}
        self.ledger = Ledger(self.shares, delivery, stateful=stateful)
        for each in partitions:
            self.come(each)

    def come(self, each: Partition) -> Share:
        self.world.partitions[each.name] = each
        nothing = lambda *_: None  # noqa: E731 - shorter than what it says
        share = Share(Run(each.epoch, each.position), each, begin=nothing, end=nothing, look=nothing)
        self.shares[each.name] = share
        return share


def test_a_batch_that_was_not_reported_is_repeated_by_whoever_takes_over() -> None:
    scene = Scene(partition(unsure=True))
    assert scene.ledger.plan({"0": Stretch(1, 100, 5)}, scene.world) == {"0": Stretch(1, 100, 12)}


def test_a_committed_batch_that_was_not_reported_counts_for_whoever_takes_over() -> None:
    scene = Scene(partition(unsure=True))
    scene.ledger.settle({"0": Stretch(1, 100, 5)}, scene.world)
    assert scene.shares["0"].run.position == 100


def test_a_partition_that_was_released_goes_on_where_the_log_says() -> None:
    scene = Scene(partition("1", epoch=5, before=0))
    batch = {"0": Stretch(1, 100, 5), "1": Stretch(1, 100, 5)}
    assert scene.ledger.plan(batch, scene.world) == {"1": Stretch(1, 100, 5)}
    scene.ledger.settle(batch, scene.world)
    back = scene.come(partition("0"))
    scene.ledger.settle(batch, scene.world)
    assert back.run.position == 1, "the batch was repeated without it"


def test_a_stretch_that_another_member_had_meanwhile_is_not_repeated() -> None:
    scene = Scene(partition(epoch=20, before=15, position=60))
    assert scene.ledger.plan({"0": Stretch(1, 100, 5)}, scene.world) == {}
    scene.ledger.settle({"0": Stretch(1, 100, 5)}, scene.world)
    assert scene.shares["0"].run.position == 60


def test_a_stretch_from_before_a_reset_is_not_repeated() -> None:
    scene = Scene(partition(epoch=20, before=5, position=40, reset=20))
    assert scene.ledger.plan({"0": Stretch(1, 100, 5)}, scene.world) == {}
    scene.ledger.settle({"0": Stretch(1, 100, 5)}, scene.world)
    assert scene.shares["0"].run.position == 40


def test_at_most_once_nothing_is_repeated_even_if_it_begins_where_the_partition_stands() -> None:
    scene = Scene(partition(reset=12), delivery="at_most_once")
    assert scene.ledger.plan({"0": Stretch(1, 100, 5)}, scene.world) == {}


def test_exactly_once_only_what_the_sink_does_not_hold_is_read_again() -> None:
    done, open_ = partition("0", position=100, unsure=True), partition("1", position=1, unsure=True)
    scene = Scene(done, open_, delivery="exactly_once")
    batch = {"0": Stretch(1, 100, 5), "1": Stretch(1, 100, 5)}
    assert scene.ledger.plan(batch, scene.world) == {"1": Stretch(1, 100, 12)}


def test_exactly_once_with_state_all_is_read_again_even_what_the_sink_holds() -> None:
    done, open_ = partition("0", position=100, unsure=True), partition("1", position=1, unsure=True)
    scene = Scene(done, open_, delivery="exactly_once", stateful=True)
    batch = {"0": Stretch(1, 100, 5), "1": Stretch(1, 100, 5)}
    assert set(scene.ledger.plan(batch, scene.world)) == {"0", "1"}


def test_a_partition_whose_sink_has_not_answered_is_passed_over() -> None:
    scene = Scene(partition(), delivery="exactly_once")
    scene.shares["0"].run.ready = False
    assert scene.ledger.plan({"0": Stretch(1, 100, 5)}, scene.world) == {}
