"""The tap: a stdio MCP server as a child process, its messages copied into the spool on the way."""

from proxy.tap.line_guard import LineGuard
from proxy.tap.messages import LineCutter, MessageRecorder
from proxy.tap.process import run_tapped

__all__ = ["LineCutter", "LineGuard", "MessageRecorder", "run_tapped"]
