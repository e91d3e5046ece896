"""``chronicle://`` in SQLAlchemy: what tools do with it, over a store and over a server."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

sqlalchemy = pytest.importorskip("sqlalchemy", reason="needs the extra sqlalchemy")

from sqlalchemy import (  # noqa: E402
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    String,
    Table,
    bindparam,
    create_engine,
    delete,
    exc,
    func,
    insert,
    inspect,
    select,
    text,
)  # fmt: skip
from sqlalchemy.dialects import registry  # noqa: E402
from sqlalchemy.engine.url import make_url  # noqa: E402
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column  # noqa: E402
from sqlalchemy.schema import CreateTable  # noqa: E402

from chronicle.dbapi.dialect import ChronicleDialect  # noqa: E402
from chronicle.server.access.tokens import create_token  # noqa: E402

for name in ("chronicle", "chronicle.http", "chronicle.https"):
    registry.register(name, "chronicle.dbapi.dialect", "ChronicleDialect")

T0 = dt.datetime(2018, 8, 1, 5)


@pytest.fixture(params=["embedded", "remote"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "embedded":
        url = f"chronicle:///{tmp_path / 'store'}"
    else:
        url = f"chronicle://127.0.0.1:{request.getfixturevalue('served').port}"
    made = create_engine(url)
    yield made
    made.dispose()


@pytest.fixture
def flights(engine: Any) -> Any:
    table = Table(
        "flights", MetaData(),
        Column("seen", DateTime, nullable=False), Column("icao24", String(6), nullable=False),
        Column("altitude", Float), Column("squawk", BigInteger), Column("fuel", Numeric(10, 2)),
        Column("raw", LargeBinary), Column("day", Date), Column("ground", Boolean),
        chronicle_codec="zstd", chronicle_retention="30 days",
    )  # fmt: skip
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [
            {"seen": T0 + dt.timedelta(seconds=n), "icao24": f"a{n % 3}", "altitude": n * 1.5,
             "squawk": 2**60 + n, "fuel": Decimal(n) / 4, "raw": bytes([n]),
             "day": dt.date(2018, 8, 1), "ground": n % 2 == 0}
            for n in range(20)
        ])  # fmt: skip
    return table


def test_a_table_is_made_written_and_read(engine: Any, flights: Any) -> None:
    with engine.connect() as connection:
        found = connection.execute(select(flights).where(flights.c.squawk == 2**60 + 3)).one()
        assert tuple(found) == (
            T0 + dt.timedelta(seconds=3), "a0", 4.5, 2**60 + 3, Decimal("0.75"), b"\x03",
            dt.date(2018, 8, 1), False,
        )  # fmt: skip
        made = connection.execute(text("SELECT codec, retention FROM chronicle.streams")).one()
        assert tuple(made) == ("zstd", "30 days")


def test_queries(engine: Any, flights: Any) -> None:
    f, g = flights.c, flights.alias("g").c
    with engine.connect() as connection:

        def ask(query: Any, **more: Any) -> list[Any]:
            return [tuple(row) for row in connection.execute(query, more)]

        top = select(f.icao24, func.max(f.altitude).label("top")).group_by(f.icao24)
        assert ask(top.order_by("top").limit(2).offset(1)) == [("a0", 27.0), ("a1", 28.5)]
        assert ask(top.having(func.count() > 6).order_by(f.icao24)) == [("a0", 27.0), ("a1", 28.5)]
        assert ask(select(func.count()).select_from(flights)) == [(20,)]
        assert ask(select(func.count()).where(f.icao24.in_(["a1", "a2"]))) == [(13,)]
        assert ask(select(func.count()).where(f.ground, ~f.icao24.like("%2"))) == [(7,)]
        joined = select(func.count()).where(g.seen == f.seen, g.altitude > f.altitude - 1)
        assert ask(joined) == [(20,)]
        inner = select(f.altitude).where(f.altitude > bindparam("low")).subquery()
        assert ask(select(func.min(inner.c.altitude)), low=7) == [(7.5,)]
        numbered = select(f.seen, func.row_number().over(order_by=f.seen.desc())).limit(1)
        assert len(ask(numbered)) == 1
        both = select(f.icao24).where(f.altitude < 2).union_all(select(f.icao24).limit(1))
        assert sorted(ask(both)) == [("a0",), ("a0",), ("a1",)]
        assert ask(text("SELECT max(altitude) FROM flights WHERE seen < :t"), t=T0) == [(None,)]
        whole = connection.execution_options(stream_results=True).execute(select(f.altitude))
        assert len(whole.fetchmany(3)) == 3
        whole.close()


def test_deleting_tells_how_many(engine: Any, flights: Any) -> None:
    with engine.begin() as connection:
        done = connection.execute(delete(flights).where(flights.c.icao24 == "a1"))
        assert done.rowcount == 7
        assert connection.execute(select(func.count()).select_from(flights)).scalar() == 13


def test_the_inspector_reads_information_schema(engine: Any, flights: Any) -> None:
    Index("by_altitude", flights.c.altitude).create(engine)
    found = inspect(engine)
    assert found.get_schema_names() == ["chronicle", "information_schema", "main"]
    assert found.default_schema_name == "main"
    assert found.get_table_names() == ["flights"] == found.get_table_names(schema="main")
    assert found.get_table_names(schema="chronicle") == []
    assert "streams" in found.get_view_names(schema="chronicle")
    assert found.get_view_names() == []
    assert found.has_table("flights")
    assert not found.has_table("Nothing")
    assert found.has_table("streams", schema="chronicle")
    columns = {column["name"]: column for column in found.get_columns("flights")}
    assert list(columns) == [column.name for column in flights.columns]
    assert not columns["seen"]["nullable"]
    assert columns["altitude"]["nullable"]
    assert isinstance(columns["squawk"]["type"], BigInteger)
    assert (columns["fuel"]["type"].precision, columns["fuel"]["type"].scale) == (10, 2)
    assert isinstance(columns["ground"]["type"], Boolean)
    assert found.get_indexes("flights") == [
        {"name": "flights_altitude", "column_names": ["altitude"], "unique": False}
    ]
    assert found.get_pk_constraint("flights")["constrained_columns"] == []
    for ask in (found.get_foreign_keys, found.get_unique_constraints, found.get_check_constraints):
        assert ask("flights") == []
    assert found.get_table_comment("flights") == {"text": None}
    for ask in (found.get_columns, found.get_indexes, found.get_pk_constraint):
        with pytest.raises(exc.NoSuchTableError):
            ask("nothing")


def test_what_was_reflected_is_the_same_again(engine: Any, flights: Any) -> None:
    metadata = MetaData()
    metadata.reflect(engine)
    again = metadata.tables["flights"]
    with engine.connect() as connection:
        query = select(again.c.icao24).where(again.c.seen > T0).limit(1)
        assert connection.execute(query).scalar() == "a1"
        main = Table("flights", MetaData(), schema="main", autoload_with=engine)
        assert connection.execute(select(func.max(main.c.altitude))).scalar() == 28.5
        streams = Table("streams", MetaData(), schema="chronicle", autoload_with=engine)
        query = select(streams.c.events).where(streams.c.stream == "flights")
        assert connection.execute(query).scalar() == 20
    written = str(CreateTable(again).compile(dialect=engine.dialect))
    flights.drop(engine)
    with engine.begin() as connection:
        connection.execute(text(written))
    assert inspect(engine).get_columns("flights")[0]["name"] == "seen"


def test_types_are_those_that_streams_have() -> None:
    table = Table(
        "s", MetaData(), Column("n", Integer), Column("select", String(3)), Column("x", Float(20)),
        Column("z", DateTime(timezone=True)), chronicle_time="n",
    )  # fmt: skip
    written = " ".join(str(CreateTable(table).compile(dialect=ChronicleDialect())).split())
    assert written == (
        'CREATE STREAM s ( n INTEGER, "select" VARCHAR, x FLOAT, z TIMESTAMPTZ ) TIMESTAMP BY n'
    )
    timeless = CreateTable(Table("s", MetaData(), Column("n", Integer)))
    with pytest.raises(exc.CompileError, match="time attribute"):
        timeless.compile(dialect=ChronicleDialect())


def test_classes_are_mapped(engine: Any) -> None:
    class Base(DeclarativeBase):
        pass

    class Trade(Base):
        __tablename__ = "trades"
        at: Mapped[dt.datetime] = mapped_column(primary_key=True)
        price: Mapped[float]

    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)  # it is there
    with Session(engine) as session:
        session.add_all([Trade(at=T0 + dt.timedelta(hours=n), price=n / 2) for n in range(3)])
        session.commit()
        found = session.scalars(select(Trade).where(Trade.price > 0).order_by(Trade.at)).all()
        assert [trade.price for trade in found] == [0.5, 1.0]
    Base.metadata.drop_all(engine)
    assert inspect(engine).get_table_names() == []


def test_pandas_reads_and_writes(engine: Any, flights: Any) -> None:
    query = "SELECT seen, altitude FROM flights WHERE altitude > 27"
    found = pd.read_sql(query, engine, index_col="seen")
    assert found["altitude"].tolist() == [28.5]
    assert len(pd.read_sql_table("flights", engine)) == 20
    parts = list(pd.read_sql(select(flights.c.altitude), engine, chunksize=8))
    assert [len(part) for part in parts] == [8, 8, 4]
    frame = pd.DataFrame({"at": pd.to_datetime([T0, T0]), "price": [1.5, None]})
    assert frame.to_sql("trades", engine, index=False) == 2
    frame.to_sql("trades", engine, index=False, if_exists="append")
    again = pd.read_sql_table("trades", engine)
    assert again["price"].isna().sum() == 2
    with engine.connect() as connection:
        versions = text("SELECT version FROM chronicle.streams WHERE stream = 'trades'")
        assert connection.execute(versions).scalar() == 2  # an append each
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("trades", engine, index=False)


def test_errors_are_those_of_sqlalchemy(engine: Any, flights: Any) -> None:
    with engine.connect() as connection:
        for query, kind in (
            ("SELECT nothing FROM flights", exc.ProgrammingError),
            ("SELECT * FROM nothing", exc.ProgrammingError),
            ("INSERT INTO flights (seen, icao24) VALUES ('no time', 'a')", exc.ProgrammingError),
        ):
            with pytest.raises(kind):
                connection.execute(text(query))
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_isolation_is_said_to_be_what_it_is(engine: Any) -> None:
    with engine.connect() as connection:
        assert connection.get_isolation_level() == "AUTOCOMMIT"
    assert create_engine(engine.url, isolation_level="AUTOCOMMIT").connect().closed is False
    with pytest.raises(exc.ArgumentError, match="AUTOCOMMIT"):
        create_engine(engine.url, isolation_level="SERIALIZABLE").connect()


def test_addresses(tmp_path: Path, served: Any) -> None:
    def meant(url: str) -> Any:
        return ChronicleDialect().create_connect_args(make_url(url))

    assert meant("chronicle:///store") == (["store"], {})
    assert meant("chronicle:////var/store?mode=r") == (["/var/store"], {"mode": "r"})
    assert meant("chronicle://:chr_x@host") == (["http://host:8000"], {"token": "chr_x"})
    assert meant("chronicle+https://host:443/db?timeout=5") == (
        ["https://host:443/db"], {"token": None, "timeout": 5.0},
    )  # fmt: skip
    assert meant("chronicle://[::1]:9")[0] == ["http://[::1]:9"]
    for wrong in ("chronicle://", "chronicle:///s?mod=r"):
        with pytest.raises(exc.ArgumentError):
            meant(wrong)
    _, secret = create_token(served.database.path, "reader", ["read"])
    engine = create_engine(f"chronicle://:{secret}@127.0.0.1:{served.port}")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
        with pytest.raises(exc.ProgrammingError, match="scope"):
            connection.execute(text("DROP STREAM flights"))
    engine.dispose()


def test_the_package_announces_the_dialect() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["sqlalchemy.dialects"]
    assert set(named) == {"chronicle", "chronicle.http", "chronicle.https"}
    assert set(named.values()) == {"chronicle.dbapi.dialect:ChronicleDialect"}
