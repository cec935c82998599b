"""``headrace gateway``: the capturing gateway alone, as it is deployed in front of agents."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.app.context import AppContext
from headrace.app.gateway_client import admin_address, ask
from headrace.app.installation import Address, gateway_config
from headrace.app.log import log, start_log
from headrace.app.output import jsonable, moment, print_rows
from headrace.cli.common import JsonOption, note_mistyped_variables
from proxy.config import GatewayConfig
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from proxy.mitm.master import Addresses

app = typer.Typer(help="Run the gateway until SIGTERM, which lets calls in flight finish.")


@app.callback(invoke_without_command=True)
def gateway(context: typer.Context) -> None:
    """Run the gateway until SIGTERM, which lets calls in flight finish."""
    if context.invoked_subcommand is not None:
        return
    from governance.policy import load_bundle
    from headrace.app.guard import GuardSetup
    from headrace.app.inline import InlineSetup, check_routes
    from proxy.gateway import serve

    running = AppContext.of(context)
    home = running.home.create()
    secrets = running.secrets
    config = gateway_config(running.settings, home)
    policy = load_bundle(running.settings.policy.folder)
    check_routes(policy, config.routes)
    guard = GuardSetup.of(policy, config.routes, home, secrets)
    note_mistyped_variables()
    start_log()
    serve(
        config,
        spool_key=secrets.derive(b"spool"),
        fingerprint_key=secrets.derive(b"fingerprint"),
        inline=InlineSetup.of(policy, home, secrets),
        guard=guard,
        ready=lambda found: log(f"gateway ready: {_places(found, config.workers)}"),
    )


def _places(found: "Addresses", workers: int) -> str:
    doors = {
        "base URL": found.base_url,
        "forward proxy": found.forward,
        "transparent": found.transparent,
        "admin": found.admin,
    }
    listed = ", ".join(f"{name} {_place(*at)}" for name, at in doors.items() if at)
    return f"{listed}; {workers} workers, admin counts up" if workers > 1 else listed


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _config(context: typer.Context) -> GatewayConfig:
    running = AppContext.of(context)
    return gateway_config(running.settings, running.home.create())


@app.command()
def probe(
    context: typer.Context,
    route: Annotated[str | None, typer.Argument(help="Route to probe; by default all.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model to ask; by default the first one that the upstream lists."),
    ] = None,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline",
            help="Send made-up values through the surrogates of `Redaction.inline`; do they come back?",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Probe the upstreams: reachable, key accepted, exact token ids, as many as the usage reports.

    Exit code 1 if one is unreachable, or returns no tokens to a route that captures them. With
    --inline routes of Redaction.inline are asked to say values again: exit code 1 if one went out
    as it is, or did not come back.
    """
    from proxy.routes.probe import probe as ask_upstream

    config = _config(context)
    if inline:
        _probe_inline(context, config, route, model, as_json=as_json)
        return
    routes = [found for found in config.routes if route in (None, found.name)]
    if not routes:
        if not config.routes:
            raise ConfigurationError(
                "no route here: give gateway.routes, or the provider's key that the gateway has "
                "(OPENAI_API_KEY, ANTHROPIC_API_KEY)."
            )
        names = ", ".join(found.name for found in config.routes)
        raise ConfigurationError(f"no such route. Routes: {names}.")
    probes = [
        (found, ask_upstream(found, choice, model=model, upstream_ca=config.upstream_ca))
        for found in routes
        for choice in found.choices
    ]
    print_rows(jsonable([asdict(result) for _, result in probes]), as_json=as_json, empty="")
    if any(
        not result.reachable or (asked.capture == "tokens" and not result.gives_tokens)
        for asked, result in probes
    ):
        raise typer.Exit(1)


def _probe_inline(
    context: typer.Context,
    config: GatewayConfig,
    route: str | None,
    model: str | None,
    *,
    as_json: bool,
) -> None:
    from governance.policy import load_bundle
    from headrace.app.inline import InlineSetup
    from proxy.inline.probe import probe_inline
    from proxy.routes.probe import probe as ask_upstream

    running = AppContext.of(context)
    bundle = load_bundle(running.settings.policy.folder)
    setup = InlineSetup.of(bundle, running.home, running.secrets)
    terms = None if setup is None else setup()
    routes = [] if terms is None else [one for one in config.routes if one.name in terms.routes]
    routes = [one for one in routes if route in (None, one.name)]
    if terms is None or not routes:
        named = "none" if terms is None else ", ".join(terms.routes)
        raise ConfigurationError(f"no route to probe: the policy's Redaction.inline names {named}.")
    results = []
    for one in routes:
        for choice in one.choices:
            ca = config.upstream_ca
            listed = model or ask_upstream(one, choice, tokens=False, upstream_ca=ca).model
            results.append(
                probe_inline(one, choice, terms, model=listed or "default", upstream_ca=ca)
            )
    print_rows(jsonable([asdict(result) for result in results]), as_json=as_json, empty="")
    if not all(result.is_sound for result in results):
        raise typer.Exit(1)


@app.command()
def inventory(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the hosts that agents reach through the running gateway's tunnels, which it does not open."""
    config = _config(context)
    place = admin_address(config)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for worker in range(config.workers):
        for row in ask(Address(place.host, place.port + worker), "inventory"):
            entry = found.setdefault((row["host"], row["port"]), row)
            if entry is not row:
                entry["connections"] += row["connections"]
                entry["first_seen"] = min(entry["first_seen"], row["first_seen"])
                entry["last_seen"] = max(entry["last_seen"], row["last_seen"])
    rows = sorted(found.values(), key=lambda row: -row["connections"])
    print_rows(
        [_shown(row, as_json=as_json) for row in rows],
        as_json=as_json,
        empty="no tunnels since the gateway started",
    )


def _shown(row: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Return a row with its times as times; a person reads a port as a name, not as a quantity."""
    times = {name: moment(row[name]) for name in ("first_seen", "last_seen")}
    return {**row, **times, "port": row["port"] if as_json else str(row["port"])}


@app.command("rotate-spool-key")
def rotate_spool_key(context: typer.Context) -> None:
    """Seal the spool with a new key from now on; older records stay readable."""
    from proxy.spool.keys import rotate

    spool = _config(context).spool
    if spool.key_file is None:
        raise ConfigurationError("gateway.spool.key_file is not set")
    kept = rotate(spool.key_file, spool.directory)
    typer.echo(f"new key in {spool.key_file}; older keys kept: {kept}")
