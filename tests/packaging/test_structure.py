"""Rules that keep the package plain: short files, descriptive names, and each value built in one place."""

from pathlib import Path

from structure import (
    calls_of,
    classes_by_name,
    classes_on_the_way,
    codes_of,
    fields_of,
    long_files,
    modules_of,
    modules_that_set,
    public_names,
)


def test_no_file_is_longer_than_a_reader_takes_in(repository: Path) -> None:
    assert long_files(repository) == {}


def test_a_class_name_says_what_it_is_without_its_room(repository: Path) -> None:
    names, public = classes_by_name(repository), public_names(repository)
    assert {name: where for name, where in names.items() if len(where) > (1 if name in public else 2)} == {}


def test_a_mistake_is_written_once_for_all_stages_that_find_it(repository: Path) -> None:
    assert {code: where for code, where in codes_of(repository).items() if len(where) > 1} == {}


def test_a_run_s_result_is_built_in_one_place(repository: Path) -> None:
    assert len(calls_of(repository, "RunResult")) == 1


def test_what_to_run_has_few_fields_and_groups_the_rest(repository: Path) -> None:
    assert fields_of(modules_of(repository)["spec.run"], "RunSpec") <= 12


def test_few_classes_pass_a_run_on(repository: Path) -> None:
    assert set(classes_on_the_way(repository)) == {
        "RunRegistry",
        "RunPool",
        "Run",
        "LocalExecutor",
        "JobExecutor",  # for a run that is a job, instead of the LocalExecutor
        "Zygote",
        "ForkedRun",
        "Execution",
    }


def test_an_option_is_named_where_it_is_declared_and_where_it_is_used(repository: Path) -> None:
    assert modules_that_set(repository, "read_seconds") == ["execute.stages", "spec.run"]
