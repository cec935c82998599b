"""Checks of an installation: environment, ports, authority, disk, permissions, versions; each with a remedy."""

import importlib.metadata
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.app.gateway_client import routes_that_run
from headrace.app.home import Home
from headrace.app.installation import addresses, gateway_config, missing_default_routes
from headrace.app.setting_sources import unknown_variables
from headrace.app.settings import Settings
from headrace.app.version import check_packages
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.plugins import GROUPS, plugins

_EXTRAS = {
    "proxy": ("mitmproxy", "uvloop", "httptools"),
    "governance": (
        "presidio-analyzer",
        "spacy",
        "great-expectations",
        "pyahocorasick",
    ),
    "train": ("torch", "transformers", "trl", "accelerate", "peft", "datasets"),
}
MITMPROXY_VERSION = "12.2.3"
_AUTHORITY_WARNING = timedelta(days=30)
_CERTIFICATE_WARNING = timedelta(days=14)
"""Programs that renew certificates begin a third of their life before the end, mostly 30 days."""
_OLD_PRICES = timedelta(days=180)
"""Providers change prices several times a year."""
_LOWEST_FREE_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Finding of one check."""

    check: str
    status: str
    """ok | warning | failure"""
    detail: str
    remedy: str = ""


type Check = Callable[[Settings, Home], Iterator[CheckResult]]


def examine(settings: Settings, home: Home) -> list[CheckResult]:
    """Run every check; one that meets an error of ours or the system's is a failure, not an end."""
    findings: list[CheckResult] = []
    for check in (
        _python,
        _packages,
        _environment,
        _extras,
        _folders,
        _disk,
        _secrets,
        _authority,
        _certificate,
        _ports,
        _credentials,
        _client_keys,
        _policy,
        _prices,
        _webhooks,
        _lake,
        _homes,
        _sql,
        _plugins,
    ):
        try:
            findings.extend(check(settings, home))
        except (HeadraceError, OSError) as error:
            findings.append(CheckResult(check.__name__.strip("_"), "failure", str(error)))
    return findings


def _python(_settings: Settings, _home: Home) -> Iterator[CheckResult]:
    found = ".".join(map(str, sys.version_info[:3]))
    supported = (3, 12) <= sys.version_info[:2] < (3, 14)
    yield CheckResult(
        "python",
        "ok" if supported else "failure",
        found,
        "" if supported else "Use Python 3.13 or 3.12.",
    )


def _packages(_settings: Settings, _home: Home) -> Iterator[CheckResult]:
    check_packages()
    yield CheckResult("packages", "ok", "all of one installation")


def _environment(_settings: Settings, _home: Home) -> Iterator[CheckResult]:
    for name, nearest in unknown_variables().items():
        meant = f"Did you mean {nearest}? " if nearest else ""
        yield CheckResult(
            "environment",
            "warning",
            f"{name} is not a setting and does nothing",
            f"{meant}`headrace config show` lists them all.",
        )


def _extras(_settings: Settings, _home: Home) -> Iterator[CheckResult]:
    for extra, names in _EXTRAS.items():
        versions, missing = [], []
        for name in names:
            try:
                versions.append(f"{name} {importlib.metadata.version(name)}")
            except importlib.metadata.PackageNotFoundError:
                missing.append(name)
        if missing:
            yield CheckResult(
                f"extra {extra}",
                "warning",
                f"missing: {', '.join(missing)}",
                f"pip install 'headrace[{extra}]', if this machine is to do that job.",
            )
        else:
            yield CheckResult(f"extra {extra}", "ok", ", ".join(versions))
        if (
            extra == "proxy"
            and not missing
            and importlib.metadata.version("mitmproxy") != MITMPROXY_VERSION
        ):
            yield CheckResult(
                "mitmproxy",
                "warning",
                f"not {MITMPROXY_VERSION}, the version that the fast path is written for",
                f"pip install mitmproxy=={MITMPROXY_VERSION}; until then the gateway is slower.",
            )


def _folders(_settings: Settings, home: Home) -> Iterator[CheckResult]:
    if not home.root.exists():
        yield CheckResult(
            "home", "warning", f"{home.root} does not exist yet", "`headrace up` makes it."
        )
        return
    if not os.access(home.root, os.W_OK | os.X_OK):
        yield CheckResult(
            "home", "failure", f"{home.root} is not writable", f"chown or chmod {home.root}"
        )
        return
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o007:
        yield CheckResult(
            "home", "warning", f"{home.root} is open to all users", f"chmod 750 {home.root}"
        )
    else:
        yield CheckResult("home", "ok", str(home.root))


def _disk(settings: Settings, home: Home) -> Iterator[CheckResult]:
    folder = home.root if home.root.exists() else Path.cwd()
    free = shutil.disk_usage(folder).free
    wanted = max(_LOWEST_FREE_BYTES, settings.gateway.spool.max_bytes)
    status = "ok" if free >= wanted else "warning"
    remedy = "" if status == "ok" else "Free some space, or lower gateway.spool.max_bytes."
    yield CheckResult("disk", status, f"{free / 2**30:.1f} GiB free", remedy)


def _secrets(settings: Settings, home: Home) -> Iterator[CheckResult]:
    from headrace.app.context import refuse_another_key
    from headrace.app.master_key import key_is_there, load_secrets

    if not key_is_there(home.secrets) and not _holds_anything(settings):
        yield CheckResult("master key", "warning", "none yet", "`headrace up` makes one.")
        return
    refuse_another_key(home, load_secrets(home.secrets))
    yield CheckResult("master key", "ok", "that of this home, readable by its owner alone")


def _authority(_settings: Settings, home: Home) -> Iterator[CheckResult]:
    from proxy.mitm.authority import load_authority

    if not any(home.authority.glob("*.pem")):
        yield CheckResult("authority", "warning", "none yet", "`headrace up` makes one.")
        return
    expires = load_authority(home.authority).expires_at
    if expires < datetime.now(UTC) + _AUTHORITY_WARNING:
        yield CheckResult(
            "authority",
            "failure",
            f"expires {expires:%Y-%m-%d}",
            f"Move {home.authority} away, start again, and give clients the new bundle.",
        )
    else:
        yield CheckResult("authority", "ok", f"valid until {expires:%Y-%m-%d}")


def _certificate(settings: Settings, _home: Home) -> Iterator[CheckResult]:
    from proxy.certificate import check_certificate

    gateway = settings.gateway
    if gateway.certificate is None or gateway.certificate_key is None:
        return
    until = check_certificate(gateway.certificate, gateway.certificate_key).not_valid_after_utc
    soon = until < datetime.now(UTC) + _CERTIFICATE_WARNING
    yield CheckResult(
        "certificate",
        "warning" if soon else "ok",
        f"{gateway.certificate} is valid until {until:%Y-%m-%d}",
        "Renew it in place; a running gateway follows within a second." if soon else "",
    )


def _ports(settings: Settings, home: Home) -> Iterator[CheckResult]:
    for name, address in addresses(gateway_config(settings, home)).items():
        with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as probe:
            probe.settimeout(1)
            taken = probe.connect_ex((address.host, address.port)) == 0
        state = "answers (a gateway, or somebody else)" if taken else "is free"
        yield CheckResult(f"port {name}", "ok", f"{address.host}:{address.port} {state}")


def _credentials(settings: Settings, home: Home) -> Iterator[CheckResult]:
    for route in settings.gateway.routes:
        if route.credential is None:
            continue
        try:
            route.credential.header_value()
        except ConfigurationError as error:
            yield CheckResult(
                f"route {route.name}", "failure", str(error), "Set it, or remove the route."
            )
        else:
            yield CheckResult(f"route {route.name}", "ok", "the provider's key is there")
    missing = missing_default_routes(settings)
    running = routes_that_run(gateway_config(settings, home)) if missing else None
    for off in missing:
        if running and off.name in running:
            yield CheckResult(f"route {off.name}", "ok", "the running gateway has it")
            continue
        yield CheckResult(
            f"route {off.name}",
            "warning",
            f"off, because {off.why_off}",
            f"export {off.variable}=… before `headrace up`, or use the forward proxy.",
        )


def _client_keys(_settings: Settings, home: Home) -> Iterator[CheckResult]:
    from proxy.clients.keys import ALL_TENANTS, KeyRegistry
    from trajectory.exchange import has_folder

    for key in KeyRegistry.load(home.client_keys).list():
        if (
            key.revoked_at is None
            and key.tenant_id != ALL_TENANTS
            and not has_folder(key.tenant_id)
        ):
            yield CheckResult(
                f"client key {key.key_id}",
                "failure",
                "no folder of the lake can have its tenant's name: nothing of its calls is captured",
                f"`headrace keys create` with a shorter name, then `headrace keys revoke {key.key_id}`.",
            )


def _policy(settings: Settings, home: Home) -> Iterator[CheckResult]:
    from governance.audit import AuditLog
    from governance.policy import load_bundle
    from headrace.app.master_key import key_is_there, load_secrets
    from headrace.govern.policy_in_force import last_policy

    bundle = load_bundle(settings.policy.folder)
    yield CheckResult("policy", "ok", f"{settings.policy.bundle} {bundle.content_hash}")
    if not key_is_there(home.secrets):
        return
    key = load_secrets(home.secrets).derive(b"audit")
    note = last_policy(AuditLog(home.audit / "audit.jsonl", key))
    if note is not None and note.refused:
        yield CheckResult(
            "policy in force",
            "warning",
            f"still {note.in_force}; a changed one was refused: {note.refused}",
            "Mend the policy; `headrace policy check` says what is wrong.",
        )


def _prices(settings: Settings, _home: Home) -> Iterator[CheckResult]:
    from trajectory.prices import load_prices

    table = load_prices(settings.gateway.prices)
    old = datetime.now(UTC).date() - table.spec.as_of > _OLD_PRICES
    yield CheckResult(
        "prices",
        "warning" if old else "ok",
        f"{table.metadata.name} has {len(table.spec.prices)} prices as of {table.spec.as_of}",
        "Upgrade Headrace, or name a table of your own in `gateway.prices`." if old else "",
    )


def _webhooks(settings: Settings, home: Home) -> Iterator[CheckResult]:
    from proxy.clients.keys import KeyRegistry

    keys = KeyRegistry.load(gateway_config(settings, home).keys)
    for webhook in settings.gateway.webhooks:
        check = f"webhook {webhook.name}"
        if keys.identity(webhook.client_key) is None:
            yield CheckResult(
                check,
                "failure",
                f"no client key of the gateway has the id {webhook.client_key}",
                "`headrace keys list` shows the ids; its events are refused until then.",
            )
            continue
        problems = list(webhook.problems())
        for place, text in problems:
            where = ".".join(map(str, place))
            yield CheckResult(
                check, "failure", f"{where}: {text}", "Mend it, or remove the webhook."
            )
        if not problems:
            rules = len(webhook.rules)
            yield CheckResult(check, "ok", f"{rules} sound rules, secret and client key are there")


def _lake(settings: Settings, home: Home) -> Iterator[CheckResult]:
    from headrace.govern.checkpoint import CheckpointStore, lacks, missing_batches
    from lakehouse.lake import Lake

    if not _holds_anything(settings):
        yield CheckResult(
            "lake", "warning", f"{settings.lake.path} does not exist yet", "`headrace up` makes it."
        )
        return
    lake = Lake.read(settings.lake.path, options=settings.lake.options)
    if missing := missing_batches(CheckpointStore(home.state).load(), lake):
        yield CheckResult("lake", "failure", lacks(missing, settings.lake.path))
        return
    rows = lake.query("select count(*) as steps from steps").to_pylist()[0]["steps"]
    yield CheckResult("lake", "ok", f"{rows} steps at {settings.lake.path}")


def _homes(settings: Settings, home: Home) -> Iterator[CheckResult]:
    from headrace.app.context import AppContext
    from headrace.services.homes import SILENT, Homes
    from lakehouse.lake import Lake

    if not _holds_anything(settings) or not home.identity.exists():
        return
    lake = Lake.read(settings.lake.path, options=settings.lake.options)
    homes = Homes.of(AppContext.made_of(settings, home=home, lake=lake))
    for one in homes.with_another_key():
        yield CheckResult(
            "homes",
            "failure",
            f"home {one.name} of this lake names people by another master key",
            "Consent and erasure by name miss the rows of one of you: give both homes the same master key.",
        )
    for name in homes.untold():
        yield CheckResult(
            "homes",
            "failure",
            f"home {name} of this lake never told its legal holds: erasure and retention are refused",
            f"Start its governor, with this version; if it is gone, `headrace lake forget {name}`.",
        )
    silent = [one for one in homes.others() if datetime.now(UTC) - one.seen_at > SILENT]
    for one in silent:
        yield CheckResult(
            "homes",
            "warning",
            f"nobody heard of home {one.name} of this lake since {one.seen_at:%Y-%m-%d}; its {len(one.legal_holds)} "
            "legal holds count on, and it carries out no erasure",
            f"Start its governor; if it is gone, destroy its keys, then `headrace lake forget {one.name}`.",
        )
    others = len(homes.others())
    if others and not silent:
        yield CheckResult("homes", "ok", f"{others} more write to this lake")


def _holds_anything(settings: Settings) -> bool:
    """Tell whether there may be a lake already; an empty folder is none."""
    folder = Path(settings.lake.path)
    return "://" in settings.lake.path or (folder.exists() and any(folder.iterdir()))


def _plugins(_settings: Settings, _home: Home) -> Iterator[CheckResult]:
    for group in GROUPS:
        for plugin in plugins(group):
            check = f"plugin {plugin.name}"
            try:
                plugin.load()
            except ConfigurationError as error:
                yield CheckResult(check, "failure", str(error), "What needs it stops until then.")
            else:
                yield CheckResult(
                    check, "ok", f"{group} of {plugin.package}; it runs as Headrace does"
                )


def _sql(settings: Settings, _home: Home) -> Iterator[CheckResult]:
    from headrace.services.sql_server import tls_of
    from lakehouse.sandbox.confinement import available

    there = available()
    missing = [name for name in ("landlock", "seccomp") if name not in there]
    if missing:
        yield CheckResult(
            "SQL of strangers",
            "warning",
            f"this kernel has no {' and no '.join(missing)}; DuckDB's own lock and the limits hold",
            "Linux 5.13 or newer, with Landlock among the security modules, has both.",
        )
    else:
        yield CheckResult("SQL of strangers", "ok", "Landlock and seccomp fence each query")
    if settings.sql_server.enabled:
        tls = tls_of(settings.sql_server)
        way = "TLS" if tls else "no TLS"
        yield CheckResult(
            "SQL server", "ok", f"{settings.sql_server.host}:{settings.sql_server.port}, {way}"
        )
