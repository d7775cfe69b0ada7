"""The database: its location, its creation, and refused files."""

import contextlib
import multiprocessing
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from old_history import create_old_history
from test_history_rows import noisy_nights, row

from comparative_benchmark.reporting.history import database as module
from comparative_benchmark.reporting.history import default_location
from comparative_benchmark.reporting.history.database import (
    RESULTS,
    VERSION,
    Database,
    HistoryError,
    Writer,
    Written,
    database_url,
    upgrade,
)
from comparative_benchmark.reporting.history.queries import Filter, rows

NIGHTS = 40
DATA = Path(__file__).parents[2] / "data"


def opened(path, **options):
    return contextlib.closing(Database(str(path), **options))


def test_the_place_is_the_variable_or_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CBS_HISTORY", "postgresql://somewhere/x")
    assert default_location() == "postgresql://somewhere/x"
    monkeypatch.delenv("CBS_HISTORY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_location() == str(tmp_path / "common-benchmark-suite" / "history.sqlite")
    with contextlib.closing(Database()) as database:
        assert str(database) == default_location()
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_location().startswith(str(tmp_path / ".local" / "share"))


def test_locations_are_files_and_two_kinds_of_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for location in ("a.sqlite", f"sqlite:///{tmp_path}/a.sqlite", "sqlite:///a.sqlite"):
        assert database_url(location).database == str(tmp_path / "a.sqlite")
    for location in ("postgresql://u:secret@h/n", "postgresql+psycopg2://u:secret@h/n"):
        url = database_url(location)
        assert url.drivername == "postgresql+psycopg"
        assert module.shown(url) == "postgresql+psycopg://u:***@h/n"


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("mysql://u:secret@h/n", "unsupported database"),
        ("sqlite://", "contains no file path"),
        ("://", "is not a database URL"),
        ("postgresql://u:secret@h:port/n", "is not a database URL"),
    ],
)
def test_other_locations_are_refused_without_their_password(location, said):
    with pytest.raises(HistoryError, match=said) as error:
        database_url(location)
    assert "secret" not in str(error.value)


def old_history(location):
    """Makes a history as the first version of this program did."""
    engine = module._engine(database_url(str(location)))
    try:
        with engine.begin() as connection:
            create_old_history(connection)
    finally:
        engine.dispose()


def schema(location):
    """Returns the columns, keys and indexes of all tables of a history."""
    found = {}
    with contextlib.closing(Database(str(location))) as database, database.reading() as connection:
        inspector = sa.inspect(connection)
        for table in inspector.get_table_names():
            columns = [
                (column["name"], str(column["type"]), column["nullable"])
                for column in inspector.get_columns(table)
            ]
            indexes = [
                (index["column_names"], index["unique"]) for index in inspector.get_indexes(table)
            ]
            found[table] = [
                sorted(columns),
                inspector.get_pk_constraint(table)["constrained_columns"],
                sorted(key["column_names"] for key in inspector.get_unique_constraints(table)),
                sorted(indexes),
                [key["referred_table"] for key in inspector.get_foreign_keys(table)],
            ]
        [view] = inspector.get_view_names()
        found[view] = [column["name"] for column in inspector.get_columns(view)]
    return found


def test_new_and_migrated_histories_have_the_same_tables(tmp_path):
    """A change of the tables needs a migration, and so does a new field of `Row`."""
    old_history(tmp_path / "old.sqlite")
    migrated = schema(tmp_path / "old.sqlite")
    assert schema(tmp_path / "new.sqlite") == migrated


def test_a_stored_history_of_an_earlier_version_is_read_and_grows(tmp_path):
    path = tmp_path / "h.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as stored:
        stored.executescript((DATA / "history-0002.sql").read_text())
    written = row(options=["fast"], extra={"tags": ["x"]})
    with opened(path) as database:
        assert list(rows(database, Filter())) == [written]
        assert Writer(database).add([written, row()]) == Written(1, 1)
        with database.reading() as connection:
            flat = connection.execute(sa.text("SELECT workload FROM cbs_history")).scalars()
            assert list(flat) == ["bert-tiny", "bert-tiny"]


def test_an_old_history_is_migrated_and_keeps_its_results(tmp_path, monkeypatch):
    path = tmp_path / "h.sqlite"
    old_history(path)
    monkeypatch.setattr(module, "HEAD", "0001")
    with opened(path) as database:
        assert Writer(database).add([row()]) == Written(1, 0)
        with database.reading() as connection:
            assert sa.inspect(connection).get_view_names() == []
    monkeypatch.undo()
    with opened(path) as database:
        with database.reading() as connection:
            assert sa.inspect(connection).get_view_names() == ["cbs_history"]
        assert list(rows(database, Filter())) == [row()]


def test_the_view_is_flat(tmp_path):
    with opened(tmp_path / "h.sqlite") as database:
        Writer(database).add([row(options=["fast"])])
        with database.reading() as connection:
            (found,) = connection.execute(sa.text("SELECT * FROM cbs_history")).mappings()
    assert found["time"] == "2026-10-01T02:30:00Z"
    assert (found["workload"], found["backend"], found["latency_ms"]) == ("bert-tiny", "jax_xla", 1)
    assert (found["options"], found["versions"]) == ('["fast"]', '{"jax":"0.10.1"}')


def test_a_migration_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(connection, revision):
        upgrade(connection, revision)
        raise sa.exc.OperationalError("CREATE", {}, RuntimeError("disk full"))

    monkeypatch.setattr(module, "upgrade", fail)
    with pytest.raises(HistoryError, match=r"h.sqlite: disk full"):
        Database(str(tmp_path / "h.sqlite"))
    monkeypatch.undo()
    with opened(tmp_path / "h.sqlite") as database:
        assert Writer(database).add([row()]).added == 1


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(HistoryError, match="another program's tables \\(recipes\\)"):
        Database(str(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_what_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "results.json"
    path.write_text('{"schema_version": 1}' * 100)
    with pytest.raises(HistoryError, match="file is not a database"):
        Database(str(path))
    assert path.read_text() == '{"schema_version": 1}' * 100


def test_a_history_of_a_newer_program_is_refused(tmp_path):
    path = tmp_path / "h.sqlite"
    with opened(path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as newer, newer:
        newer.execute(f"UPDATE {VERSION.name} SET version_num = '9999'")
    with pytest.raises(HistoryError, match="newer version of cbs"):
        Database(str(path))


def test_a_history_that_is_not_there_is_made_only_by_an_import(tmp_path):
    with pytest.raises(HistoryError, match="cbs history import"):
        Database(str(tmp_path / "h.sqlite"), create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match="file"):
        Database(str(tmp_path / "file" / "deeper" / "h.sqlite"))
    with pytest.raises(HistoryError, match="unable to open"):
        Database(str(tmp_path))


def test_known_rows_change_nothing(tmp_path):
    made = noisy_nights(0, nights=3)
    with opened(tmp_path / "h.sqlite") as database:
        assert Writer(database).add(made) == Written(12, 0)
        assert Writer(database).add([*made, *made]) == Written(0, 24)
        assert Writer(database).add([made[0], row(), row()]) == Written(1, 2)
        with database.reading() as connection:
            counted = connection.execute(sa.select(sa.func.count()).select_from(RESULTS)).scalar()
    assert counted == 13


def test_rows_come_back_as_they_were_written(tmp_path):
    made = [
        row(),
        row(options=["a", "b"], extra={"tags": ["x", None, 1.5]}, identity="i", versions={}),
        row(
            status="failed",
            reason="in 'compile'; DROP TABLE",
            latency_ms=None,
            batch_size=None,
            latency_low_ms=None,
            latency_high_ms=None,
            threads=None,
            processes=None,
        ),
        row(workload="ünï%_\\code", machine='"quoted"', environment="e", source="oss-v3"),
    ]
    with opened(tmp_path / "h.sqlite") as database:
        Writer(database).add(made)
        found = list(rows(database, Filter()))
    assert sorted(found, key=lambda item: item.content) == sorted(made, key=lambda i: i.content)


def write(location, seed, barrier):
    # Many transactions, which interleave with others'.
    module._CHUNK = 50
    barrier.wait()
    with opened(location) as database:
        made = noisy_nights(seed, nights=NIGHTS)
        # Backwards: two writers that lock in different orders would wait for each other for ever.
        Writer(database).add(made if seed % 2 else made[::-1])
        Writer(database).add(noisy_nights(1000, nights=NIGHTS)[:: 1 if seed % 2 else -1])


def race(location, writers=3):
    """Lets processes make and fill one history at once; returns their exit codes."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(writers)
    processes = [
        context.Process(target=write, args=(location, seed, barrier)) for seed in range(writers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


@pytest.mark.slow
def test_writers_side_by_side_lose_nothing_and_write_nothing_twice(tmp_path):
    location = str(tmp_path / "h.sqlite")
    assert race(location) == [0, 0, 0]
    with opened(location) as database:
        assert len(list(rows(database, Filter()))) == 4 * NIGHTS * 4
