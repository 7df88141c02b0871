"""Spark applications as members: the source, the seat, the sinks, and pipelines made of them."""

from echelon.spark.output import EachBatch, SparkOutput
from echelon.spark.pipeline import Pipeline, pipeline
from echelon.spark.session import build_session
from echelon.spark.sinks.delta import DeltaSink
from echelon.spark.source import register

__all__ = ["DeltaSink", "EachBatch", "Pipeline", "SparkOutput", "build_session", "pipeline", "register"]
