"""The shape of the code: one name for one thing, no module without a reason, tests where one looks for them."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("trajectory", "proxy", "governance", "lakehouse", "train", "evolve", "headrace")
REGISTRIES = {
    "headrace.cli": "a file for each noun of the command line",
    "trajectory.dialects.registry": "a file for each wire format",
    "trajectory.formats.catalog": "a file for each document format",
    "evolve.proposers.catalog": "a file for each kind of candidate",
    "lakehouse.schema.columns": "a file for each kind of table",
}
"""Modules that list what lies beside them: each entry is a module of its own."""
SMALL = 350
"""Lines that one module may have after a merge."""
ALONE: dict[str, str] = {
    "proxy.telemetry.metrics": "what is measured; proxy.telemetry.admin is where it is asked",
    "proxy.api.traces": "one endpoint",
    "proxy.api.signatures": "the schemes of vendors, tested alone against their own examples",
    "governance.detect.rules.hooks": "checks that rules in YAML name",
    "governance.redact.generalise": "one operator",
    "governance.redact.surrogates": "one operator",
    "governance.redact.splice": "one algorithm: findings that overlap, tested alone",
    "headrace.services.agreement": "statistics, tested alone against those of scikit-learn",
    "headrace.services.inspection": "wants the detectors, which headrace.services.changes does without",
    "lakehouse.maintenance.compaction_io": "files of a compaction, tested alone against a full disk",
    "trajectory.dialects.google_gemini.stream": "each wire has read, stream and write",
    "lakehouse.sandbox.statement": "the wall that SQL of strangers meets first, reviewed alone",
}
"""Modules with one importer beside them that stay apart, and why."""
NOUNS = {"encoding", "finding", "housekeeping", "recording", "serving", "settings"}
"""Names of modules that end as participles do, and are nouns."""
ACROSS: dict[str, str] = {
    "agents": "whole agents", "documentation": "pages", "deploy": "deployments",
    "interop": "other people's programs", "scenarios": "one behaviour of the whole product each",
}  # fmt: skip
"""Folders of tests that belong to no room."""
BEHAVIOURS = {
    "governance": "test_dialects test_drift test_engine_properties test_leftovers test_wire",
    "governance/detect": "test_accounts test_bare_numbers test_labels test_passwords test_secrets test_things "
    "test_told_names",
    "governance/redact": "test_operators test_practice test_wire_hiding test_wire_realistic",
    "headrace": "test_cli_credit test_cli_privacy test_cli_quality test_documents test_dry_run "
    "test_open_lake test_plugins",
    "headrace/app": "test_manifests test_tool_routes",
    "headrace/cli": "test_readings",
    "headrace/serving": "test_end_to_end",
    "lakehouse": "test_contract test_crash test_full_disk test_power_cut",
    "lakehouse/read/views": "test_ends test_evolution test_files test_rewards test_scorecards test_spans "
    "test_statistics test_update_gains",
    "lakehouse/sql_server": "test_flight_sql_messages",
    "practice": "test_live",
    "proxy": "test_fault_matrix test_faults test_forward test_garbage test_hostile test_http2 "
    "test_identity test_mcp test_memory test_refusing_disk test_sending test_token_dialects test_transparent test_workers",
    "proxy/inline": "test_declassification",
    "proxy/mitm": "test_answers test_strangers test_tunnels",
    "train": "test_accelerator test_chat_templates test_floors test_gate_errors "
    "test_package test_registry_races test_trl_formats test_volatile_prompts",
    "trajectory": "test_yaml_documents",
    "trajectory/assembly": "test_agents test_background test_properties test_shadows",
    "trajectory/dialects": "test_fields test_golden test_golden_calls test_hostile test_mcp_streams "
    "test_logprobs test_mcp_tasks test_people test_resent_bodies test_sdk_fields",
    "trajectory/formats": "test_patch",
}
"""Tests of what several modules of a room do together; the first line of each says what that is."""


def _modules() -> dict[str, Path]:
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def _importers(modules: dict[str, Path]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [target if target in modules else node.module for target in targets]
            else:
                continue
            for target in targets:
                if target in modules and target != name:
                    found[target].add(name)
    return found


def test_no_class_has_a_namesake() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in _modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_module_is_named_by_a_noun() -> None:
    """A participle says what is done, not what is found in the module."""
    last = {name.rpartition(".")[2] for name in _modules()}
    words = {name.rpartition("_")[2] for name in last}
    assert {word for word in words if re.search(r"(?:ing|ings|ed)\Z", word)} <= NOUNS
    assert words >= NOUNS, "take out of the list what is gone"


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines."""
    match node:
        case ast.Assign(targets=targets):
            return [one.id for one in targets if isinstance(one, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.TypeAlias(name=ast.Name(id=name)):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
    return []


def test_what_a_module_names_for_itself_is_used() -> None:
    unused = []
    for module, path in _modules().items():
        if path.name.endswith("_pb2.py"):
            continue  # generated
        text = path.read_text(encoding="utf-8")
        own = {name for node in ast.parse(text).body for name in _names_of(node)}
        unused += [
            f"{module}.{name}"
            for name in sorted(own)
            if re.match(r"_[^_]", name) and len(re.findall(rf"\b{name}\b", text)) == 1
        ]
    assert unused == []


def test_a_module_with_one_importer_has_a_reason() -> None:
    modules = _modules()
    lines = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules.items()
    }
    found = {}
    for name, importers in _importers(modules).items():
        (importer, *others) = sorted(importers)
        is_package = modules[name].name == "__init__.py"
        beside = name.rpartition(".")[0] == importer.rpartition(".")[0]
        if others or is_package or not beside or importer in REGISTRIES:
            continue
        if lines[name] + lines[importer] <= SMALL:
            found[name] = importer
    assert {name: importer for name, importer in found.items() if name not in ALONE} == {}
    assert set(ALONE) <= set(found), "take out of the list what is merged now"


def test_private_names_stay_in_their_module() -> None:
    """Who needs a name from outside makes it public; tests and benchmarks too."""
    imported = []
    for top in (*ROOMS, "tests", "benchmarks", "examples", "scripts"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ImportFrom) or node.module is None:
                    continue
                if node.module.partition(".")[0] not in (*ROOMS, "tests", "benchmarks", "examples"):
                    continue  # other people's packages
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                private = [name for name in names if re.match(r"_[^_]", name)]
                imported += [(str(path.relative_to(ROOT)), name) for name in private]
    assert imported == []


def test_what_is_imported_is_declared() -> None:
    """What comes only with something else may leave with it."""
    provided = packages_distributions()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {
        re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line)[0]).lower()
        for line in (*project["dependencies"], *(one for name in extras for one in extras[name]))
    }
    undeclared = set()
    for name, path in _modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported = {node.module.partition(".")[0]}
            else:
                continue
            for top in imported - {*sys.stdlib_module_names, *ROOMS, "policies", "examples"}:
                by = {re.sub(r"[-_.]+", "-", one).lower() for one in provided.get(top, ())}
                if by and not by & declared:
                    undeclared.add((name, top))
    assert undeclared == set()


def test_a_test_lies_where_its_module_lies() -> None:
    modules = _modules()
    places = {name.replace(".", "/") for name in modules}
    places |= {place.rpartition("/")[0] for place in places}
    lonely = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests")
        if place.parts[0] in ACROSS or len(place.parts) == 1:
            continue
        name = place.with_name(place.stem.removeprefix("test_")).as_posix()
        example = (ROOT / "examples" / name).with_suffix(".py")
        if path.read_text(encoding="utf-8").startswith(
            '"""The plain listener passes what the other'
        ):
            continue  # tests of the gateway, run again
        if name not in places and not example.exists():
            lonely.add(place.with_suffix("").as_posix())
    behaviours = {f"{room}/{test}" for room, tests in BEHAVIOURS.items() for test in tests.split()}
    assert lonely - behaviours == set()
    assert behaviours <= lonely, "take out of the list what has a module now"
