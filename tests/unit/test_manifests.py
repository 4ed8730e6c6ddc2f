"""Which objects the files of a command hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from planform.cli.objects.manifests import read_manifests
from planform.errors import UsageError

TEST = "apiVersion: test.planform.dev/v1alpha1\nkind: CompositionTest\ncases: []\n"
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_a_directory_may_hold_tests_of_its_compositions(tmp_path: Path) -> None:
    (tmp_path / "app_test.yaml").write_text(TEST)
    (tmp_path / "app.yaml").write_text(f"{OBJECT}---\n{TEST}")
    assert [obj["kind"] for obj in read_manifests([str(tmp_path)])] == ["ConfigMap"]


def test_a_test_that_is_named_says_what_to_do_with_it(tmp_path: Path) -> None:
    file = tmp_path / "app_test.yaml"
    file.write_text(TEST)
    with pytest.raises(UsageError, match=r"app_test.yaml, document 1: CompositionTest is not for a control") as refused:
        read_manifests([str(file)])
    assert "planform test" in (refused.value.hint or "")


def test_a_directory_of_tests_alone_holds_no_objects(tmp_path: Path) -> None:
    (tmp_path / "app_test.yaml").write_text(TEST)
    with pytest.raises(UsageError, match="no objects in"):
        read_manifests([str(tmp_path)])
