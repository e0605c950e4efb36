"""Reads every table of a run with DuckDB and with polars, and prints rows, columns and sums as JSON."""

import json
import sys
from pathlib import Path

import duckdb
import polars as pl

run = Path(sys.argv[1])
found = {}
for path in sorted(run.glob("*.parquet")):
    by_duckdb = duckdb.sql(f"SELECT * FROM '{path}'")
    by_polars = pl.read_parquet(path)
    columns = [column for column, kind in zip(by_duckdb.columns, by_duckdb.types) if str(kind) in ("BIGINT", "DOUBLE")]
    sums = ", ".join(f"sum({column})::DOUBLE" for column in columns)
    of_duckdb = by_duckdb.aggregate(f"count(*), {sums}").fetchall()[0]
    of_polars = [by_polars.height] + [by_polars[column].cast(pl.Float64).sum() for column in columns]
    # The sum of a column without values is NULL in DuckDB, and 0 in polars.
    agree = all(abs((a or 0) - (b or 0)) <= 1e-9 * abs(b or 0) for a, b in zip(of_duckdb, of_polars))
    found[path.stem] = {
        "rows": of_duckdb[0],
        "columns": by_duckdb.columns,
        "polars_columns": by_polars.columns,
        "agree": agree,
        "sums": dict(zip(columns, of_duckdb[1:])),
    }
requests = f"'{run}/requests.parquet'"
found["requests"]["failed"] = duckdb.sql(f"SELECT count(*) FROM {requests} WHERE cause IS NOT NULL").fetchall()[0][0]
found["requests"]["p99"] = duckdb.sql(f"SELECT quantile_disc(done_at_ns - scheduled_at_ns, 0.99) FROM {requests}").fetchall()[0][0]
found["requests"]["polars_p99"] = (
    pl.scan_parquet(run / "requests.parquet")
    .select((pl.col("done_at_ns") - pl.col("scheduled_at_ns")).quantile(0.99, interpolation="nearest"))
    .collect()
    .item()
)
print(json.dumps(found))
