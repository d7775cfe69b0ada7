"""`cbs history query` and `ls`: filters, formats, trends, and forbidden statements."""

import contextlib
import csv
import datetime
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_history_regressions import cbs, history  # noqa: F401
from test_history_rows import START, night, noisy_nights, row

from comparative_benchmark.reporting.history import queries
from comparative_benchmark.reporting.history.database import Database, HistoryError
from comparative_benchmark.reporting.history.queries import Filter, open_trends
from comparative_benchmark.reporting.history.rows import microseconds, parse_time, timestamp

VARIED = [
    row(**night(1), workload="bert-tiny", options=["fast", "tf32"]),
    row(**night(2), workload="bert_large", options=["fast"], batch_size=16),
    row(
        **night(3),
        workload="gpt2",
        backend="iree",
        status="failed",
        latency_ms=None,
        latency_low_ms=None,
        latency_high_ms=None,
    ),
    row(**night(4, versions={"torch": "2.13.0"}), workload="50%", batch_size=None),
]


@pytest.fixture
def database(history):  # noqa: F811
    with contextlib.closing(Database(str(history(VARIED)))) as opened:
        yield opened


FILTERS = {
    "nothing": (Filter(), [1, 2, 3, 4]),
    "a value": (Filter(texts={"workload": ["gpt2"]}), [3]),
    "one of two": (Filter(texts={"workload": ["gpt2", "50%"]}), [3, 4]),
    "a pattern": (Filter(texts={"workload": ["bert*"]}), [1, 2]),
    "any character": (Filter(texts={"workload": ["bert?large"]}), [2]),
    "a character that SQL takes for any": (Filter(texts={"workload": ["bert_t*"]}), []),
    "a character that SQL takes for all": (Filter(texts={"workload": ["5*%"]}), [4]),
    "the wrong case": (Filter(texts={"workload": ["BERT*"]}), []),
    "a number": (Filter(texts={"batch_size": ["16"]}), [2]),
    "text instead of a number": (Filter(texts={"batch_size": ["x"]}), []),
    "a digit that is not decimal": (Filter(texts={"batch_size": ["\u00b2"]}), []),
    "a number that no column holds": (Filter(texts={"batch_size": ["9" * 5000]}), []),
    "one option of several": (Filter(texts={"options": ["tf32"]}), [1]),
    "two columns": (Filter(texts={"workload": ["bert*"], "batch_size": ["1"]}), [1]),
    "a status": (Filter(texts={"status": ["failed"]}), [3]),
    "a run": (Filter(texts={"run_id": ["run-2"]}), [2]),
    "a version": (Filter(versions={"jax": ["0.10.2"]}), [2]),
    "versions by pattern": (Filter(versions={"jax": ["0.10.*"]}), [1, 2, 3]),
    "a package that others lack": (Filter(versions={"torch": ["*"]}), [4]),
    "two packages": (Filter(versions={"jax": ["*"], "torch": ["*"]}), []),
    "since": (Filter(since=night(3)["time"]), [3, 4]),
    "until": (Filter(until=night(3)["time"]), [1, 2]),
    "the newest": (Filter(newest=2), [3, 4]),
    "an injection": (Filter(texts={"workload": ["' OR 1=1 --"]}), []),
    "an injection by package": (Filter(versions={"x' OR 'a'='a": ["*"]}), []),
}


@pytest.mark.parametrize(("which", "expected"), FILTERS.values(), ids=FILTERS)
def test_filters(database, which, expected):
    found = [
        int(record["run_id"].removeprefix("run-")) for record in queries.records(database, which)
    ]
    assert found == expected
    if which.newest is None:
        assert queries.count(database, which) == len(expected)


def test_rows_are_those_that_were_written(database):
    assert list(queries.rows(database, Filter())) == VARIED


def test_a_column_that_is_none_can_not_be_asked_for(database):
    with pytest.raises(KeyError):
        queries.count(database, Filter(texts={"1=1; DROP TABLE cbs_results": ["x"]}))


def test_trends_are_of_right_answers_in_the_order_of_time(history):  # noqa: F811
    plant = lambda case, number: (  # noqa: E731
        {"status": "wrong_output", "latency_ms": None} if number == 3 else {}
    )
    rows = noisy_nights(0, nights=6, cases=2, plant=plant)
    expected = [item for item in rows if item.benchmark == "models/case-1" and item.status == "ok"]
    place = ("models/case-1", "jax_xla:xla", "host-cpu", "A CPU", "case-1", 2)
    others = [msgspec.structs.replace(item, threads=8) for item in rows]
    others += [msgspec.structs.replace(item, workload_digest="other") for item in rows]
    with contextlib.closing(open_trends(str(history([*others, *rows[::-1]])))) as trends:
        points = trends.trend(place)
        assert [tuple(point) for point in points] == [
            (r.time, r.latency_ms, r.latency_low_ms, r.latency_high_ms, r.versions)
            for r in expected
        ]
        assert len(trends.trend((*place[:-1], 8))) == len(expected)
        assert not trends.trend(("models/case-1", "iree:x", *place[2:]))


def test_trends_of_a_history_that_is_not_there(tmp_path):
    with pytest.raises(HistoryError, match="no history"):
        open_trends(str(tmp_path / "none.sqlite"))


def test_series_are_listed_with_their_last_status(database):
    found = {item.dimensions["workload"]: item for item in queries.series(database, Filter())}
    assert set(found) == {"bert-tiny", "bert_large", "gpt2", "50%"}
    assert found["gpt2"].last_status == "failed"
    assert (found["gpt2"].results, found["gpt2"].first) == (1, night(3)["time"])
    assert found["bert-tiny"].dimensions["options"] == ["fast", "tf32"]


def test_the_last_of_two_results_at_one_time_is_the_one_that_was_written_last(history):  # noqa: F811
    with contextlib.closing(Database(str(history([row()])))) as opened:
        from comparative_benchmark.reporting.history.database import Writer

        Writer(opened).add(
            [row(status="failed", latency_ms=None, latency_low_ms=None, latency_high_ms=None)]
        )
        (found,) = queries.series(opened, Filter())
    assert (found.results, found.last_status) == (2, "failed")


def test_json_has_every_column(cbs, history):  # noqa: F811
    path = history(VARIED)
    code, out, _ = cbs("query", "--db", path, "--format", "json", "--workload", "bert*")
    assert code == 0
    first, second = json.loads(out)
    assert first["time"] == night(1)["time"].isoformat()
    assert first["versions"] == {"jax": "0.10.1", "numpy": "2.4.6"}
    assert (first["options"], second["batch_size"]) == (["fast", "tf32"], 16)
    assert json.loads(cbs("query", "--db", path, "--format", "json", "--backend", "x")[1]) == []


def test_csv_reads_back(cbs, history, tmp_path):  # noqa: F811
    path = history(
        [
            *VARIED,
            row(
                **night(9),
                reason='a,"b"\nc',
                status="failed",
                latency_ms=None,
                latency_low_ms=None,
                latency_high_ms=None,
            ),
        ]
    )
    code, out, _ = cbs("query", "--db", path, "--format", "csv", "-o", tmp_path / "o.csv")
    assert (code, out) == (0, "")
    with (tmp_path / "o.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [line["run_id"] for line in found] == [f"run-{n}" for n in (1, 2, 3, 4, 9)]
    assert float(found[0]["latency_ms"]) == 1.0
    assert found[2]["latency_ms"] == ""
    assert found[4]["reason"] == 'a,"b"\nc'
    assert json.loads(found[0]["versions"]) == {"jax": "0.10.1", "numpy": "2.4.6"}


def test_parquet_reads_back(cbs, history, tmp_path):  # noqa: F811
    parquet = pytest.importorskip("pyarrow.parquet")
    path = history(VARIED)
    code, *_ = cbs("query", "--db", path, "--format", "parquet", "-o", tmp_path / "o.parquet")
    assert code == 0
    found = parquet.read_table(tmp_path / "o.parquet").to_pylist()
    assert [item["latency_ms"] for item in found] == [1.0, 1.0, None, 1.0]
    assert found[0]["time"] == night(1)["time"]
    assert dict(found[0]["versions"]) == {"jax": "0.10.1", "numpy": "2.4.6"}
    assert found[0]["options"] == ["fast", "tf32"]
    assert found[3]["batch_size"] is None
    empty = tmp_path / "e.parquet"
    cbs("query", "--db", path, "--format", "parquet", "-o", empty, "--backend", "none")
    assert parquet.read_table(empty).num_rows == 0
    code, _, err = cbs("query", "--db", path, "--format", "parquet")
    assert code == 1
    assert "add -o FILE" in err


def test_the_table_is_for_people_and_says_what_it_leaves_out(cbs, history):  # noqa: F811
    path = history(noisy_nights(0, nights=20, cases=3))
    code, out, _ = cbs("query", "--db", path)
    assert code == 0
    assert "jax_xla:xla" in out
    assert "2026-10-20 02:30" in out
    assert "the newest 50 of 60 results" in out
    assert cbs("query", "--db", path, "--limit", "7")[1].count("jax_xla:xla") == 7
    code, out, _ = cbs("ls", "--db", path)
    assert "trends: 3, results: 60" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "expected a time such as"),
        (["--package", "jax"], "expected NAME=VERSION, got 'jax'"),
        (["--limit", "0"], "expected a positive integer, got '0'"),
        (["--format", "xml"], "unknown --format 'xml'; choices are "),
        (["-o", "nowhere/o.csv", "--format", "csv"], "nowhere/o.csv cannot be written"),
    ],
)
def test_what_a_user_mistypes(cbs, history, arguments, said):  # noqa: F811
    code, out, err = cbs("query", "--db", history(VARIED), *arguments)
    assert (code, out) == (1, "")
    assert said in err


def test_a_history_that_is_not_there(cbs):  # noqa: F811
    for action in ("query", "ls", "regressions"):
        code, _, err = cbs(action, "--db", "none.sqlite")
        assert code == 1
        assert "cbs history import" in err


@given(time=st.datetimes(timezones=st.just(datetime.UTC)))
@settings(deadline=None)
def test_times_keep_their_microseconds(time):
    assert timestamp(microseconds(time)) == time


def test_times_as_people_type_them():
    now = START
    assert parse_time("2d", now) == now - datetime.timedelta(days=2)
    assert parse_time("12h", now) == now - datetime.timedelta(hours=12)
    assert parse_time("2026-10-01") == datetime.datetime(2026, 10, 1, tzinfo=datetime.UTC)
    assert parse_time("2026-10-01T04:30+02:00") == START
    for wrong in ("d", "-1d", "999999w", "2026-13-01", ""):
        with pytest.raises(ValueError):
            parse_time(wrong, now)


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NUMBER = st.none() | st.floats(0, 1e12)


@pytest.mark.slow
@given(
    made=st.lists(
        st.builds(
            row,
            workload=TEXT.filter(bool),
            machine=TEXT,
            reason=TEXT,
            options=st.lists(TEXT, max_size=2),
            versions=st.dictionaries(TEXT, TEXT, max_size=2),
            extra=st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=2),
            compile_ms=NUMBER,
            error=NUMBER,
            identity=TEXT,
            time=st.datetimes(
                datetime.datetime(1971, 1, 1),  # noqa: DTZ001
                datetime.datetime(2200, 1, 1),  # noqa: DTZ001
                timezones=st.just(datetime.UTC),
            ),
        ),
        max_size=4,
        unique_by=lambda made: made.content,
    )
)
@settings(max_examples=25, deadline=None)
def test_whatever_a_row_holds_comes_back(tmp_path_factory, made):
    path = tmp_path_factory.mktemp("h") / "h.sqlite"
    with contextlib.closing(Database(str(path))) as opened:
        from comparative_benchmark.reporting.history.database import Writer

        Writer(opened).add(made)
        found = list(queries.rows(opened, Filter()))
    assert sorted(found, key=lambda item: item.content) == sorted(made, key=lambda i: i.content)
