"""The gateway: captures LLM and tool traffic into the sealed spool and is never noticed."""
