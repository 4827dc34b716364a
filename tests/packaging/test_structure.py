"""What keeps the package plain: short files, names that say what they are, each value built in one place."""

from __future__ import annotations

from pathlib import Path

from structure import calls_of, classes_by_name, fields_of, long_files, modules_of, public_names


def test_no_file_is_longer_than_a_reader_takes_in(repository: Path) -> None:
    assert long_files(repository) == {}


def test_a_class_name_says_what_it_is_without_its_room(repository: Path) -> None:
    names, public = classes_by_name(repository), public_names(repository)
    assert {name: where for name, where in names.items() if len(where) > (1 if name in public else 2)} == {}


def test_a_run_s_result_is_built_in_one_place(repository: Path) -> None:
    assert len(calls_of(repository, "RunResult")) == 1


def test_what_to_run_has_few_fields_and_groups_the_rest(repository: Path) -> None:
    assert fields_of(modules_of(repository)["spec.run"], "RunSpec") <= 12
