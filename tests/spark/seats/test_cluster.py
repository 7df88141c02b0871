"""A Spark cluster of a master and two workers."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from echelon.spark.launch import java_home, quick_home
from tests.members.stage import scene
from tests.spark.jvm import quick_java
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import check_table, until_done


def start(stack: ExitStack, log: Path, *command: str) -> None:
    """Start a part of Spark, which ends with the test."""
    home = java_home()
    environment = {**os.environ, **quick_java(), "SPARK_HOME": str(quick_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JAVA_HOME": str(home)} if home is not None else {}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [f"{quick_home()}/bin/spark-class", *command], env=environment, stdout=out, stderr=out
        )
    stack.callback(process.wait)
    stack.callback(process.kill)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core."""
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        port = 20_000 + os.getpid() % 10_000
        url = f"spark://127.0.0.1:{port}"
        deploy = "org.apache.spark.deploy"
        ports = ("--webui-port", "0")
        start(stack, log, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), *ports)
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name))
            start(stack, tmp_path / f"{name}.log", f"{deploy}.worker.Worker", "--host", "127.0.0.1", *size, *ports, url)
        yield url


@scene
async def test_a_pipeline_runs_on_a_cluster_with_the_package_shipped_to_its_executors(
    nats_stage: SparkStage, cluster: str
) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("local", "m1", sink="delta", master=cluster)
    stage.launch_spark("one", "m1", sink="delta", master=cluster, shared=True)
    await stage.publish(300)
    await until_done(stage, 90)
    await check_table(stage)
    assert await stage.ended("local", 60) == 1
    assert "is a local path" in stage.errors("local")
    await stage.drain("one")
