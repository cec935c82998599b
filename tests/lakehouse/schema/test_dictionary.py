"""The data dictionary in the docs is what the schema says."""

from pathlib import Path

import pytest

from lakehouse.read.views.catalog import VIEWS
from lakehouse.schema import dictionary
from lakehouse.schema.tables import TABLES


def test_the_docs_are_up_to_date() -> None:
    assert dictionary.main(["--check"]) == 0


def test_every_table_column_and_view_is_described() -> None:
    text = dictionary.data_dictionary()
    for spec in TABLES.values():
        assert f"### {spec.name}\n" in text
        assert all(f"| `{column.name}` |" in text for column in spec.columns)
        assert all(column.comment for column in spec.columns)
    assert all(f"### {view.name}\n" in text for view in VIEWS)


def test_an_outdated_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dictionary, "_PLACE", tmp_path / "d.md")
    assert dictionary.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert dictionary.main([]) == 0
    assert dictionary.main(["--check"]) == 0
