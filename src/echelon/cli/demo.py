"""`echelon demo`: a pipeline on this machine, with a crash in between."""

from typing import Annotated, Final

import typer

from echelon.cli.exits import NOT_EXACT, TERMINATED

_LEAST_SECONDS: Final = 20
"""For so long readings are written, be they ever so few: the crash has to come while some are still to come."""
_MOST_A_SECOND: Final = 1_000


def demo(
    json: Annotated[bool, typer.Option("--json", help="A line of JSON at the end; all else goes to stderr.")] = False,
    messages: Annotated[int, typer.Option("--messages", min=1000, help="How many readings are written.")] = 20_000,
) -> None:
    """Show a Spark pipeline survive a crash. A stand-by takes over, and an audit counts what was lost or doubled."""
    import asyncio

    import msgspec

    from echelon.extras import extra

    with extra("spark", "pyspark"):
        from echelon.demo.show import show

    def tell(words: str) -> None:
        typer.echo(words, err=json)

    rate = min(_MOST_A_SECOND, messages // _LEAST_SECONDS)
    try:
        result = asyncio.run(show(tell, messages=messages, a_second=rate))
    except asyncio.CancelledError:  # SIGTERM; what it had started has ended.
        raise typer.Exit(TERMINATED) from None
    tell(
        f"\n{result.messages:,} messages, {result.processed:,} processed: {result.lost} lost, "
        f"{result.duplicated} duplicated, {result.out_of_order} out of order.\n"
        f"Failover took {result.failover_seconds:.1f} s; the whole demo {result.seconds:.0f} s."
    )
    if json:
        typer.echo(msgspec.json.encode(result).decode())
    if result.lost or result.duplicated or result.out_of_order:
        raise typer.Exit(NOT_EXACT)
