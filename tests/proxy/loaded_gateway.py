"""What a gateway imports when it starts, for the process that the gateways of tests are forked from."""

import gc

import uvloop

import proxy.gateway
import proxy.plain.listener
import proxy.telemetry.metrics

__all__ = ["proxy", "uvloop"]

# What is here for good is not looked through again in each process that is forked.
gc.collect()
gc.freeze()
