"""Reads tables of a lake as Spark does, and prints what it found as JSON.

Runs in the environment ``readers``: PySpark's own client against Sail, a server in Rust that speaks
Spark Connect and Delta and needs neither a JVM nor jars.
"""

import json
import sys

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

root, version = sys.argv[1:3]
server = SparkConnectServer()
server.start()
_, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
counts = {name: spark.read.format("delta").load(f"{root}/{name}").count() for name in sys.argv[3:]}
spark.read.format("delta").load(f"{root}/steps").createOrReplaceTempView("steps")
rows = spark.sql(
    "select tenant_id, trajectory_id, count(*) as n, max(input_tokens) as t from steps "
    "where event_date = date '2026-11-20' group by 1, 2 order by 1, 2"
).collect()
earlier = (
    spark.read.format("delta").option("versionAsOf", int(version)).load(f"{root}/steps").count()
)
print(json.dumps({"counts": counts, "steps": [list(row) for row in rows], "earlier": earlier}))  # noqa: T201
spark.stop()
server.stop()
