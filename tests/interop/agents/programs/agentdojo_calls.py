"""Prints the calls that AgentDojo's tasks ask for: those of its users, and those of its injections."""

import json
import sys

from agentdojo.task_suite.load_suites import get_suites

found = []
for suite in get_suites("v1.2").values():
    environment = suite.load_and_inject_default_environment({})
    for kind, tasks in (("injection", suite.injection_tasks), ("user", suite.user_tasks)):
        for task in tasks.values():
            calls = [
                {"tool": call.function, "arguments": dict(call.args)}
                for call in task.ground_truth(environment)
            ]
            if calls:
                found.append({"kind": kind, "calls": calls})
sys.stdout.write(json.dumps(found, default=str))
