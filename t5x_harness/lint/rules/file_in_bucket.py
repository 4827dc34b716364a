"""GIN33: gin files at gs://, which nothing in a T5X job opens."""

from __future__ import annotations

from collections.abc import Iterator

from t5x_harness.findings.rule import Example, Found, Mistake
from t5x_harness.gin.modules import ModuleFinder, module_path
from t5x_harness.gin.program import GinProgram, Include
from t5x_harness.gin.sources import SourceFinder
from t5x_harness.gin.values import format_value
from t5x_harness.lint.rule import Context, finds
from t5x_harness.spec import Location

_GS = "gs://"
_HEAD = "include 't5x/examples/t5/t5_1_1/tiny.gin'\n"


GIN33 = Mistake(
    "GIN33",
    "FileInBucket",
    "gin file at gs://",
    why=(
        "Gin reads files as Python does, and T5X gives it no other reader: `Unable to open file: gs://…`, whether the "
        "object exists or not. Vertex AI mounts buckets at /gcs. Elsewhere the file has to lie beside the "
        "job, or the job's own program calls `gin.config.register_file_reader(tf.io.gfile.GFile, tf.io.gfile.exists)` "
        "before T5X; then silence this. A module that the config imports may call it, too, above the include."
    ),
    bad=Example(_HEAD + "include 'gs://bucket/finetune.gin'\n", at="include 'gs://bucket"),
    good=Example(_HEAD + "include '/gcs/bucket/finetune.gin'\n"),
)


@finds(GIN33)
def file_in_bucket(context: Context) -> Iterator[Found]:
    """Finds each gin file at gs://, unless a module that the config imports gives Gin a reader for it."""
    program = context.program
    asked = [(name, at) for name, at in _asked_for(program) if name.startswith(_GS)]
    sources = SourceFinder(ModuleFinder(module_path(program.spec), None))
    if not asked or any(_gives_reader(sources, each.module) for each in program.imports):
        return
    for name, at in asked:
        mounted = format_value(f"/gcs/{name.removeprefix(_GS)}", limit=200)
        yield Found(
            f"Gin cannot open {name}, nor anything else at gs://",
            at,
            f"write {mounted}, Vertex AI's mount of the bucket, or copy the file beside the job",
        )


def _asked_for(program: GinProgram) -> Iterator[tuple[str, Location | None]]:
    """Yields every gin file that is asked for, and the include that does; None for a file that the user named."""
    for name in program.spec.gin_files:
        yield name, None
    for statement in program.statements:
        if isinstance(statement, Include):
            yield statement.target, statement.location


def _gives_reader(sources: SourceFinder, module: str) -> bool:
    source = sources.source(module)
    return source is not None and source.mentions("register_file_reader")
