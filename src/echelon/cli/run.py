"""`echelon run`: a pipeline as a member of its group."""

from typing import Annotated

import typer


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's file, or FILE:NAME.", show_default=False)],
    member: Annotated[
        str | None, typer.Option("--member", "-m", help="The seat to take.", show_default="any that is vacant")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call this instance.", show_default="member and host")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    broker: Annotated[str | None, typer.Option("--broker", help="Instead of the broker that the file names.")] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="Lower sits first.")] = 0,
) -> None:
    """Run a pipeline: take a seat in its group, or stand by for it; Ctrl-C and SIGTERM drain.

    The group is made if it is not there. Progress goes to standard error.
    """
    import asyncio
    import os

    from msgspec import structs

    from echelon.group.records import Profile
    from echelon.spark.load import load_pipeline
    from echelon.spark.progress import Progress
    from echelon.spark.run import Watcher, run_pipeline

    pipeline = load_pipeline(file)
    if broker is not None:
        pipeline = structs.replace(pipeline, broker=broker)
    profile = Profile(
        name=name or f"{member or pipeline.group}@{os.uname().nodename}", member=member, priority=priority
    )
    progress = Progress()
    watcher = Watcher(on_stage=progress.stage, on_event=progress.event, on_batch=progress.batch)
    try:
        asyncio.run(run_pipeline(pipeline, profile, master=master, watcher=watcher))
    finally:
        progress.close()
