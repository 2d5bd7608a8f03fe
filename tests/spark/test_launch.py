"""Pipelines are found in files, and errors are told without Spark's part of them."""

from pathlib import Path
from types import ModuleType

import pytest
from pyspark.errors import AnalysisException, PythonException

from oncelog.spark import BadConfiguration, Pipeline, Sink, Source
from oncelog.spark.launch import load, pipeline_of
from oncelog.spark.own_error import essence, own_sentence, own_traceback


def a_pipeline(name: str) -> Pipeline:
    return Pipeline(
        source=Source("localhost:1", subscribe="in"),
        sink=Sink("localhost:1", topic="out", transactional_id=name),
    )


def a_module(**content: object) -> ModuleType:
    module = ModuleType("work")
    vars(module).update(content)
    return module


def test_a_variable_holds_the_pipeline() -> None:
    job = a_pipeline("a")

    assert pipeline_of(a_module(job=job, alias=job, other=1)) is job


def test_a_function_makes_the_pipeline() -> None:
    job = a_pipeline("a")

    assert pipeline_of(a_module(pipeline=lambda: job)) is job


@pytest.mark.parametrize("name", ["second", "b"])
def test_one_of_several_is_chosen_by_either_name(name: str) -> None:
    first, second = a_pipeline("a"), a_pipeline("b")

    assert pipeline_of(a_module(first=first, second=second), name) is second


@pytest.mark.parametrize(
    ("module", "name", "sentence"),
    [
        (a_module(), None, "has no pipeline: assign one"),
        (a_module(pipeline=lambda: 3), None, "returns 3: no Pipeline"),
        (a_module(job=a_pipeline("a")), "b", "has no pipeline 'b'"),
        (
            a_module(one=a_pipeline("a"), two=a_pipeline("b")),
            None,
            r"several pipelines, one \(a\), two \(b\): choose one with --name",
        ),
    ],
)
def test_what_is_not_a_pipeline_is_explained(
    module: ModuleType, name: str | None, sentence: str
) -> None:
    with pytest.raises(BadConfiguration, match=sentence):
        pipeline_of(module, name)


def test_a_file_is_imported_with_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", ["/nowhere"])
    (tmp_path / "beside_the_job.py").write_text("ANSWER = 42")
    (tmp_path / "the_job.py").write_text("from beside_the_job import ANSWER")

    assert vars(load(tmp_path / "the_job.py"))["ANSWER"] == 42


def test_of_sparks_words_only_the_sentence_stays() -> None:
    text = "[UNRESOLVED_COLUMN] No column `x`. SQLSTATE: 42703;\n'Project ['x]\n+- Range (0, 10)\n"

    assert essence(AnalysisException(text)) == "[UNRESOLVED_COLUMN] No column `x`. SQLSTATE: 42703"
    assert essence(AnalysisException("Job aborted.\nDriver stacktrace:\n\tat x")) == "Job aborted."


def test_a_traceback_shows_the_users_frames_only(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def work():\n    return {}['x']\n")

    with pytest.raises(KeyError) as caught:
        load(tmp_path / "fails.py").work()

    told = own_traceback(caught.value)
    assert f'File "{tmp_path / "fails.py"}", line 2, in work' in told
    assert told.endswith("KeyError: 'x'")


def test_an_executors_error_is_told_with_its_own_traceback() -> None:
    text = 'In the worker:\nTraceback (most recent call last):\n  File "a.py"\nValueError: no\n'

    assert own_traceback(PythonException(text)) == text.strip()


def test_what_our_code_says_in_an_executor_is_a_sentence() -> None:
    text = (
        "In the worker:\nTraceback:\n  File\noncelog.spark.rejects.BadRow: row 3 is bad. Mend it.\n"
    )

    assert own_sentence(PythonException(text)) == "row 3 is bad. Mend it."
    assert own_sentence(PythonException("Traceback:\nValueError: oncelog.x: no")) is None
    assert own_sentence(ValueError(text)) is None
