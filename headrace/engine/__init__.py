"""Engines: where the heavy, pure parts of governing and curating run.

``local`` is this process. ``ray`` carries them to the worker processes of a Ray cluster, on this
machine or on many, against the same spool and the same tables. What has an order stays with the
one governing process: the spool's cursor, assembly, repetitions, commits. So the rows are the
same, and what dies on the way is simply done again.
"""

from headrace.engine.cluster import Executor, engine_of, open_engine

__all__ = ["Executor", "engine_of", "open_engine"]
