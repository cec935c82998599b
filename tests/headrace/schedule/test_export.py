"""What other schedulers are given says the same as the schedule."""

import ast
from pathlib import Path

import pytest
import yaml

from headrace.schedule.export import export, on_calendar
from tests.headrace.schedule.test_runner import schedule

FILE, HOME = Path("/etc/headrace/night.yaml"), Path("/var/lib/headrace")
NIGHT = schedule(
    cron="30 2 * * 1-5",
    time_zone="Europe/Berlin",
    deadline_minutes=90,
    conditions={"gpu": "free"},
)


def test_cron_has_zone_times_and_command() -> None:
    _, zone, line, again = export(NIGHT, "cron", file=FILE, home=HOME).splitlines()
    assert again == f"@reboot {line.partition('1-5 ')[2]} --if-due"
    assert "@reboot" not in export(schedule(catch_up=False), "cron", file=FILE, home=HOME)
    assert zone == "CRON_TZ=Europe/Berlin"
    assert line.startswith("30 2 * * 1-5 headrace --home /var/lib/headrace schedule run ")


@pytest.mark.parametrize(
    ("cron", "calendar"),
    [
        ("0 2 * * *", "*-*-* 2:0:00"),
        ("*/15 1-5 * * *", "*-*-* 1..5:0/15:00"),
        ("30 2 * * 1-5", "Mon..Fri *-*-* 2:30:00"),
        ("0 2 1,15 */3 *", "*-1/3-1,15 2:0:00"),
        ("5 4 * * 0,6", "Sun,Sat *-*-* 4:5:00"),
    ],
)
def test_systemd_calendar(cron: str, calendar: str) -> None:
    assert on_calendar(cron) == calendar


@pytest.mark.parametrize("cron", ["0 2 1 * 1", "0 2 L * *", "0 2 * * */2"])
def test_what_systemd_cannot_say_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match="systemd"):
        on_calendar(cron)


def test_systemd_units_end_after_the_deadline_and_make_up_for_missed_nights() -> None:
    text = export(NIGHT, "systemd", file=FILE, home=HOME)
    assert "OnCalendar=Mon..Fri *-*-* 2:30:00 Europe/Berlin" in text
    assert "Persistent=true" in text
    assert "TimeoutStartSec=5460" in text


def test_kubernetes_job_has_zone_deadline_and_gpu() -> None:
    document = yaml.safe_load(export(NIGHT, "k8s", file=FILE, home=HOME))
    spec = document["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("30 2 * * 1-5", "Europe/Berlin")
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == 5460
    (container,) = job["template"]["spec"]["containers"]
    assert container["args"] == ["schedule", "run", str(FILE)]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}


def test_airflow_file_is_python_that_calls_the_command() -> None:
    text = export(NIGHT, "airflow", file=FILE, home=HOME)
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    words = {k.arg: k.value for call in calls for k in call.keywords if k.arg}
    assert ast.literal_eval(words["skip_on_exit_code"]) == [1]
    assert ast.literal_eval(words["schedule"]) == "30 2 * * 1-5"
    assert "schedule run /etc/headrace/night.yaml" in ast.literal_eval(words["bash_command"])
