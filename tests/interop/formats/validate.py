"""Run by the Python of the environment ``formats``: what others' own models say of our documents.

Reads ``{"atif": [...], "openenv": [...], "cyclonedx": [...]}`` and prints, for each, the error or an
empty text.
"""

import importlib.util
import json
import sys
import types


def openenv_models() -> types.ModuleType:
    """Return OpenEnv's training contract without starting the packages around it (a web server)."""
    found = importlib.util.find_spec("openenv")
    root = next(iter(found.submodule_search_locations))
    for name in ("core", "core.harness", "core.harness.capture"):
        package = types.ModuleType(f"openenv.{name}")
        package.__path__ = ["/".join((root, *name.split(".")))]
        sys.modules[f"openenv.{name}"] = package
    return importlib.import_module("openenv.core.harness.training")


def cyclonedx_error(document: object) -> str:
    """Return what CycloneDX's own schema says of a bill of materials."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    return "" if error is None else repr(error)


def main() -> None:
    """Validate what comes on standard input."""
    from harbor.models.trajectories.trajectory import Trajectory

    trace = openenv_models().TrainingTrace
    told = {}
    given = json.load(sys.stdin)
    for name, model in (("atif", Trajectory), ("openenv", trace)):
        told[name] = []
        for document in given.get(name, ()):
            try:
                model.model_validate(document)
            except ValueError as error:
                told[name].append(str(error))
            else:
                told[name].append("")
    told["cyclonedx"] = [cyclonedx_error(document) for document in given.get("cyclonedx", ())]
    sys.stdout.write(json.dumps(told))


main()
