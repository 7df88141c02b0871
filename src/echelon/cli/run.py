"""`echelon run`: a pipeline as a member of its group."""

from typing import Annotated

import typer

from echelon.cli.connection import Connection


def run(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's file, or FILE:NAME.", show_default=False)],
    member: Annotated[
        str | None, typer.Option("--member", "-m", help="The seat to take.", show_default="any that is vacant")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call this instance.", show_default="member and host")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="Lower sits first.")] = 0,
) -> None:
    """Run a Spark pipeline. It takes a seat in its group, or stands by for it; Ctrl-C and SIGTERM drain.

    The group is made if it is not there. The broker is the one that the file names, unless --broker or --context says
    another. Progress goes to standard error.
    """
    import asyncio
    import os

    from msgspec import structs

    from echelon.extras import extra
    from echelon.group.records import Profile

    with extra("spark", "pyspark"):
        from echelon.spark.load import load_pipeline
        from echelon.spark.progress import Progress
        from echelon.spark.run import Watcher, run_pipeline

    pipeline = load_pipeline(file)
    connection: Connection = ctx.obj
    if connection.broker is not None or connection.context is not None or not pipeline.broker:
        url, options = connection.find()
        pipeline = structs.replace(
            pipeline, broker=url, broker_options={key: str(value) for key, value in options.items()}
        )
    profile = Profile(
        name=name or f"{member or pipeline.group}@{os.uname().nodename}", member=member, priority=priority
    )
    progress = Progress()
    watcher = Watcher(
        on_stage=progress.stage,
        on_instance=progress.instance,
        on_event=progress.event,
        on_batch=progress.batch,
    )
    try:
        asyncio.run(run_pipeline(pipeline, profile, master=master, watcher=watcher))
    finally:
        progress.close()
