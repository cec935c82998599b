"""Writes a schedule as what the user's own scheduler runs: cron, systemd, Kubernetes, Airflow."""

import json
import shlex
from pathlib import Path

import yaml

from train.schedule import LATE, Schedule

FORMATS = ("cron", "systemd", "k8s", "airflow")

_AIRFLOW = '''\
"""Nightly training of {model} with Headrace (schedule {name})."""

from datetime import datetime, timedelta

from airflow import DAG

try:  # Airflow 3
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:
    from airflow.operators.bash import BashOperator

with DAG(
    dag_id={dag_id},
    schedule={cron},
    start_date=datetime(2026, 1, 1, tzinfo=__import__("zoneinfo").ZoneInfo({zone})),
    catchup=False,  # the schedule itself makes up for missed nights, once
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes={deadline:g}),
):
    # 1: the gate refused what was made, which is no failure
    BashOperator(task_id="night", bash_command={command}, skip_on_exit_code=[1])
'''


def export(schedule: Schedule, form: str, *, file: Path, home: Path) -> str:
    """Return the text for a scheduler.

    Args:
        schedule: what to run.
        form: one of ``FORMATS``.
        file: the schedule's own document, as the scheduler's machine sees it.
        home: the home folder there.

    Raises:
        ValueError: systemd cannot express the cron expression.
    """
    command = ["headrace", "--home", str(home), "schedule", "run", str(file)]
    if form == "cron":
        return _cron(schedule, command)
    if form == "systemd":
        return _systemd(schedule, command)
    if form == "k8s":
        return _kubernetes(schedule, file)
    return _AIRFLOW.format(
        model=schedule.spec.model,
        name=schedule.metadata.name,
        dag_id=json.dumps(f"headrace-{schedule.metadata.name}"),
        cron=json.dumps(schedule.spec.cron),
        zone=json.dumps(schedule.spec.time_zone),
        deadline=schedule.spec.deadline_minutes,
        command=json.dumps(shlex.join(command)),
    )


def _cron(schedule: Schedule, command: list[str]) -> str:
    # A percent sign ends the command in a crontab.
    line = shlex.join(command).replace("%", "\\%")
    text = (
        "# cronie reads CRON_TZ; where cron does not know it (Debian), the machine's zone counts\n"
        f"CRON_TZ={schedule.spec.time_zone}\n{schedule.spec.cron} {line}\n"
    )
    # Cron itself forgets what came while the machine was off.
    return text + f"@reboot {line} --if-due\n" if schedule.spec.catch_up else text


def _systemd(schedule: Schedule, command: list[str]) -> str:
    name = f"headrace-{schedule.metadata.name}"
    calendar = f"{on_calendar(schedule.spec.cron)} {schedule.spec.time_zone}"
    persistent = "true" if schedule.spec.catch_up else "false"
    seconds = round(60 * schedule.spec.deadline_minutes) + 60
    return f"""# {name}.timer
[Unit]
Description=Headrace training, schedule {schedule.metadata.name}

[Timer]
OnCalendar={calendar}
Persistent={persistent}

[Install]
WantedBy=timers.target

# {name}.service
[Unit]
Description=Headrace training, schedule {schedule.metadata.name}

[Service]
Type=oneshot
ExecStart=/usr/bin/env {shlex.join(command)}
TimeoutStartSec={seconds}
SuccessExitStatus=1
UMask=0077
"""


_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def on_calendar(cron: str) -> str:
    """Return a cron expression as systemd's ``OnCalendar``.

    Raises:
        ValueError: it names both a day of month and a day of week, which cron joins by *or*, or
            uses names or the letters L, W and #.
    """
    fields = cron.split()
    if len(fields) != 5 or any(char.isalpha() or char == "#" for char in cron):
        raise ValueError(f"systemd has no form of {cron!r}; use numbers in five fields")
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise ValueError(f"systemd cannot express day of month or day of week as in {cron!r}")
    date = f"*-{_steps(month, 1)}-{_steps(day, 1)}"
    week = "" if weekday == "*" else _weekdays(weekday) + " "
    return f"{week}{date} {_steps(hour, 0)}:{_steps(minute, 0)}:00"


def _steps(text: str, first: int) -> str:
    """Turn ``*/n`` and ``a-b`` into systemd's ``first/n`` and ``a..b``, part by part."""
    parts = []
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if span == "*":
            parts.append(f"{first}/{step}" if slash else "*")
        else:
            parts.append(span.replace("-", "..") + slash + step)
    return ",".join(parts)


def _weekdays(text: str) -> str:
    names = []
    for part in text.split(","):
        if "/" in part or "*" in part:
            raise ValueError(f"systemd has no form of the days of week {text!r}")
        names.append("..".join(_WEEKDAYS[int(day)] for day in part.split("-")))
    return ",".join(names)


def _kubernetes(schedule: Schedule, file: Path) -> str:
    spec = schedule.spec
    container: dict[str, object] = {
        "name": "night",
        "image": "headrace-trainer",
        "args": ["schedule", "run", str(file)],
        "volumeMounts": [
            {"name": "home", "mountPath": "/var/lib/headrace"},
            {"name": "documents", "mountPath": str(file.parent), "readOnly": True},
        ],
    }
    if spec.conditions.gpu == "free":
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "containers": [container],
        "volumes": [
            {"name": "home", "persistentVolumeClaim": {"claimName": "headrace-home"}},
            {"name": "documents", "configMap": {"name": f"headrace-{schedule.metadata.name}"}},
        ],
    }
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": round(60 * spec.deadline_minutes) + 60,
        "template": {"spec": pod},
    }
    # A controller that was away begins the last night that it missed, unless it is too late for it.
    late = {} if spec.catch_up else {"startingDeadlineSeconds": round(LATE.total_seconds())}
    document = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"headrace-{schedule.metadata.name}"},
        "spec": {
            "schedule": spec.cron,
            "timeZone": spec.time_zone,
            **late,
            "concurrencyPolicy": "Forbid" if spec.overlap == "skip" else "Allow",
            "jobTemplate": {"spec": job},
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
