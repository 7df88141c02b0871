"""A stream as a DataFrame, without a group: one query, whose checkpoint alone says how far it is.

$ python examples/spark_source.py

Run it again, and it goes on where it ended. The rows are in the folder `rows`.
"""

import os

from echelon.spark import build_session

spark = build_session("readings")
source = spark.readStream.format("echelon").option("broker", os.environ["ECHELON_URL"]).option("stream", "SENSORS")
rows = source.option("startingPositions", "earliest").load().selectExpr("sequence", "subject", "cast(data as string)")
sink = rows.writeStream.format("parquet").option("path", "rows").option("checkpointLocation", "rows-checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
print(f"the folder has {spark.read.parquet('rows').count()} rows")
spark.stop()
