"""``headrace audit``: is the audit log intact, and does a value rest anywhere it must not."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.app.context import AppContext
from headrace.app.output import jsonable, print_fields, print_json, print_rows, progress
from headrace.cli.common import JsonOption
from trajectory.errors import ConfigurationError
from trajectory.files import lines_of

if TYPE_CHECKING:
    from lakehouse.maintenance.scan import ScanReport

app = typer.Typer(help="Proofs: the audit log, and scans for values.", no_args_is_help=True)


@app.command()
def verify(
    context: typer.Context,
    anchor: Annotated[
        str | None, typer.Option(help="SEQUENCE:HASH that an earlier verify printed.")
    ] = None,
    anchors: Annotated[
        Path | None,
        typer.Option(help="File that `audit anchor` wrote; every anchor in it must match."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the hash chain of the audit log; print its head, to be noted elsewhere as an anchor."""
    from governance.audit_entries import AuditHead
    from headrace.services.anchors import read_anchors
    from headrace.services.audit_check import verified_log

    running = AppContext.of(context)
    noted = read_anchors(anchors, running.certifier.public_key) if anchors is not None else []
    known = [*noted]
    if anchor is not None:
        sequence, _, entry_hash = anchor.partition(":")
        if not sequence.isdigit() or not entry_hash:
            raise ConfigurationError(
                "an anchor looks like 12:b2:4f0c…, as `audit verify` prints it."
            )
        known.append(AuditHead(int(sequence), entry_hash))
    head = verified_log(running, known)
    fields: dict[str, object] = {
        "entries": head.sequence,
        "anchor": f"{head.sequence}:{head.entry_hash}",
    }
    if anchors is not None:
        fields["anchors that fit"] = len(noted)
    print_fields({**fields, "intact": True}, as_json=as_json)


@app.command()
def anchor(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Option(help="Append the anchor to this file, best on another machine's disk."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="POST the anchor to this URL as JSON; any 2xx counts as stored."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the audit log and store its signed end elsewhere, so that a cut is detected."""
    from headrace.services.anchors import append_anchor, post_anchor, signed_anchor
    from headrace.services.audit_check import verified_log

    if file is None and url is None:
        raise ConfigurationError("say where to: --file FILE or --url URL.")
    running = AppContext.of(context)
    head = verified_log(running)
    said = signed_anchor(head, running.certifier)
    if file is not None:
        append_anchor(file, said)
    if url is not None:
        post_anchor(url, said)
    print_fields({"anchor": f"{head.sequence}:{head.entry_hash}", "noted": True}, as_json=as_json)


@app.command("list")
def list_entries(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the latest last.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the latest entries of the audit log."""
    entries = AppContext.of(context).audit.latest(limit)
    columns = ("sequence", "recorded_at", "actor", "action", "subject", "detail")
    print_rows(
        [jsonable(entry) for entry in entries],
        as_json=as_json,
        columns=columns,
        empty="no entries yet",
    )


@app.command("public-key")
def public_key(context: typer.Context, as_json: JsonOption = False) -> None:
    """Print the key that signs this installation's certificates, to be noted elsewhere."""
    print_fields({"public_key": AppContext.of(context).certifier.public_key}, as_json=as_json)


@app.command("verify-certificate")
def verify_certificate(
    context: typer.Context,
    certificate: Annotated[Path, typer.Argument(help="Certificate that `headrace erase` wrote.")],
    public_key: Annotated[
        str | None,
        typer.Option(help="Key that must have signed it; by default this installation's."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the signature of an erasure certificate and print what it says."""
    from governance.certificates import read_certificate, verified

    expected = public_key or AppContext.of(context).certifier.public_key
    said = verified(read_certificate(certificate), expected)
    print_fields({**said, "signature": "holds"}, as_json=as_json)


@app.command()
def scan(
    context: typer.Context,
    values: Annotated[
        list[str] | None,
        typer.Argument(help="Values to look for; - reads them from standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with one value per line.")] = None,
    include_spool: Annotated[bool, typer.Option(help="Scan the sealed spool's bytes too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Scan every file at rest, the lake's too wherever it lies, for values, in other spellings too: raw,
    escaped, encoded and compressed. Exit 1 when found."""
    from governance.redact.canonical import spellings
    from headrace.app.installation import gateway_config
    from lakehouse.maintenance.scan import scan as scan_files
    from lakehouse.storage.location import Location

    running = AppContext.of(context)
    wanted = _values(values or [], file)
    spelled = [(at, one) for at, value in enumerate(wanted) for one in spellings(value)]
    spool = gateway_config(running.settings, running.home).spool.directory
    places = [running.home.root]
    if include_spool and spool.is_dir() and not spool.is_relative_to(running.home.root):
        places.append(spool)
    with progress("scanning", quiet=as_json) as advance:
        report = scan_files(
            places,
            [one for _, one in spelled],
            skip=None if include_spool else lambda path: path == spool,
            progress=advance,
            lake=Location.parse(running.settings.lake.path, running.settings.lake.options),
        )
    hits = tuple(replace(hit, value=spelled[hit.value - 1][0] + 1) for hit in report.hits)
    _print_scan(replace(report, hits=hits), len(wanted), as_json=as_json)
    if hits:
        raise typer.Exit(1)


def _print_scan(report: "ScanReport", values: int, *, as_json: bool) -> None:
    if as_json:
        print_json(jsonable(report) | {"values": values, "values_found": report.values_found})
    else:
        print_fields(
            {
                "values": values,
                "found": report.values_found,
                "files": report.files,
                "bytes": report.bytes_read,
                "unreadable": len(report.unreadable),
            },
            as_json=False,
        )
        print_rows(
            [jsonable(hit) for hit in report.hits[:50]], as_json=False, empty="not found anywhere"
        )


def _values(given: list[str], file: Path | None) -> list[str]:
    lines = list(given)
    if "-" in lines:
        lines.remove("-")
        lines += sys.stdin.read().removeprefix("\ufeff").split("\n")
    if file is not None:
        lines += lines_of(file)
    wanted = [line.strip() for line in lines if line.strip()]
    if not wanted:
        raise ConfigurationError("give values, --file FILE, or - for standard input.")
    return wanted
