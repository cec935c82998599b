"""The tap: a stdio MCP server as a child process, its messages copied into the spool on the way."""

from proxy.tap.messages import LineCutter, MessageRecorder
from proxy.tap.process import run_tapped

__all__ = ["LineCutter", "MessageRecorder", "run_tapped"]
