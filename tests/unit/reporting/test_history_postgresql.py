"""The history in PostgreSQL: a server of the test's own, on a socket in its folder."""

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sa
from test_history_database import NIGHTS, old_history, race, schema
from test_history_queries import FILTERS, VARIED
from test_history_regressions import BAD, planted
from test_history_rows import noisy_nights, row

from comparative_benchmark.reporting.history import database as module
from comparative_benchmark.reporting.history import queries
from comparative_benchmark.reporting.history.database import Database, HistoryError, Writer, Written
from comparative_benchmark.reporting.history.queries import Filter
from comparative_benchmark.reporting.history.regressions import find_regressions

pytest.importorskip("psycopg")
# SQLite has the same tests in the default tier.
pytestmark = pytest.mark.nightly


def program(name):
    """Returns a program of PostgreSQL: on the path, or where Debian keeps its versions."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def unprivileged():
    """Returns options for a process without root, since the server refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and this machine lacks another user for it")
    return {}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Returns the URL of a server's databases, without a name."""
    missing = [name for name in ("initdb", "pg_ctl") if not program(name)]
    if missing:
        pytest.skip(f"PostgreSQL is not installed: no {' and no '.join(missing)}")
    user = unprivileged()
    # Not in pytest's folder: that is root's alone, and a socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="cbs-pg-", dir="/tmp"))
    if user:
        os.chown(folder, user["user"], user["group"])
    data, log = folder / "data", folder / "log"

    def run(*command):
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, **user
        )

    try:
        made = run(program("initdb"), "-D", data, "-U", "cbs", "-A", "trust", "-N", "-E", "UTF8")
        assert made.returncode == 0, made.stderr
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c log_min_messages=fatal"
        begun = run(program("pg_ctl"), "-D", data, "-l", log, "-w", "-o", options, "start")
        assert begun.returncode == 0, log.read_text() if log.exists() else begun.stderr
        try:
            yield f"postgresql://cbs@/{{name}}?host={folder}"
        finally:
            run(program("pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def location(server, request):
    """Returns the URL of a database of the test's own."""
    name = "test_" + "".join(c for c in request.node.name.lower() if c.isalnum())[:40]
    engine = sa.create_engine(
        module.database_url(server.format(name="postgres")), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return server.format(name=name)


def test_rows_come_back_and_known_ones_change_nothing(location):
    with contextlib.closing(Database(location)) as database:
        assert Writer(database).add(VARIED) == Written(4, 0)
        assert Writer(database).add([*VARIED, row()]) == Written(1, 4)
        found = list(queries.rows(database, Filter()))
    assert found == [row(), *VARIED]


def test_filters_find_the_same_as_in_sqlite(location):
    with contextlib.closing(Database(location)) as database:
        Writer(database).add(VARIED)
        for name, (which, expected) in FILTERS.items():
            found = [item["run_id"] for item in queries.records(database, which)]
            assert found == [f"run-{number}" for number in expected], name
        assert len(queries.series(database, Filter())) == 4
        with database.reading() as connection:
            view = connection.execute(sa.text("SELECT time, workload FROM cbs_history"))
            assert {(time, workload) for time, workload in view} == {
                (item.time, item.workload) for item in VARIED
            }


def test_regressions_are_the_same_as_in_sqlite(location, tmp_path):
    rows = noisy_nights(0, plant=planted(latency_ms=1.08))
    found = []
    for where in (location, str(tmp_path / "h.sqlite")):
        with contextlib.closing(Database(where)) as database:
            Writer(database).add(rows)
            found.append(find_regressions(database, Filter()))
    assert found[0] == found[1]
    (finding,) = found[0].counted
    assert finding.first_bad.run_id == f"run-{BAD}"


@pytest.mark.slow
def test_writers_side_by_side_lose_nothing_and_write_nothing_twice(location):
    assert race(location) == [0, 0, 0]
    with contextlib.closing(Database(location)) as database:
        assert queries.count(database, Filter()) == 4 * NIGHTS * 4


def test_an_old_history_is_migrated_and_keeps_its_results(location, monkeypatch):
    old_history(location)
    monkeypatch.setattr(module, "HEAD", "0001")
    with contextlib.closing(Database(location)) as database:
        Writer(database).add([row()])
    monkeypatch.undo()
    with contextlib.closing(Database(location)) as database, database.reading() as connection:
        assert sa.inspect(connection).get_view_names() == ["cbs_history"]
        assert connection.execute(sa.text("SELECT versions FROM cbs_history")).scalar() == (
            json.dumps({"jax": "0.10.1"}, separators=(",", ":"))
        )


def test_new_and_migrated_histories_have_the_same_tables(location, server):
    old_history(location)
    assert schema(server.format(name="postgres")) == schema(location)


def test_tables_of_other_programs_may_stand_next_to_ours(location):
    engine = sa.create_engine(module.database_url(location))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('theirs')"))
    with contextlib.closing(Database(location)) as database:
        Writer(database).add([row()])
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    engine.dispose()
    assert found == "theirs"


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path):
    location = f"postgresql://u:secret@/n?host={tmp_path}"
    with pytest.raises(HistoryError, match=r"u:\*\*\*@/n") as error:
        Database(location)
    assert "secret" not in str(error.value)
