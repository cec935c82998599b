"""Telemetry of the gateway: counters, metrics, traces, and the port where they are asked for."""
