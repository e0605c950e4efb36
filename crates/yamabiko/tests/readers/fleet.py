"""Reads the rows that a tap manager has stored, with DuckDB and SQLite, and prints the result as JSON.

    fleet.py stored DATA                     counts of the index: rows, batches not yet placed, streams, refusals by kind
    fleet.py days DATA                       the day files only, also while the manager writes: rows and sums by agent
    fleet.py differing DATA OTHER [COLUMN..] rows of the day files that only one of two managers has, without some columns
    fleet.py clocks DATA                     rows of the day files, and those with a measured clock
    fleet.py check DATA ACCOUNTS SHIFTS      compares the rows with the programs' own accounts; see `check`

Accounts are the CSV files of tests/support/fleet/talker.c, AGENT.PROGRAM.csv.
"""

import csv
import gzip
import json
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

NS = 1_000_000_000
# Maximum difference between a row's time and the times that the program recorded: on a very busy machine the clock
# offset is measured with slow round trips. The agents' wall clocks are wrong by at least seven minutes.
TOLERANCE_NS = 5 * NS
# Columns of a row in day files and pending batches: name and type.
COLUMNS = {
    "agent": "VARCHAR", "stream": "VARCHAR", "sequence": "BIGINT", "program": "VARCHAR", "pid": "BIGINT", "side": "VARCHAR",
    "connection": "BIGINT", "exchange": "BIGINT", "last": "BOOLEAN", "peer": "VARCHAR", "peer_port": "BIGINT",
    "sent_bytes": "BIGINT", "received_bytes": "BIGINT", "outcome": "VARCHAR", "error": "VARCHAR",
    "at_unix_ns": "BIGINT", "clock_offset_ns": "BIGINT",
}


def index(data):
    """Opens the manager's index read-only."""
    return sqlite3.connect(f"file:{data}/index.sqlite?mode=ro", uri=True, timeout=30)


def stored(data):
    with index(data) as sql:
        rows = sql.execute('SELECT coalesce(sum("rows"), 0) FROM agents').fetchone()[0]
        batches = sql.execute("SELECT count(*) FROM pending").fetchone()[0]
        streams = dict(sql.execute("SELECT stream, through FROM streams").fetchall())
        refused = dict(sql.execute("SELECT why, count FROM refused").fetchall())
        missed = sql.execute("SELECT coalesce(sum(rows_missed), 0) FROM agents").fetchone()[0]
        omitted = sql.execute("SELECT coalesce(sum(rows_dropped + rows_filtered + rows_not_drawn), 0) FROM agents").fetchone()[0]
    return {"rows": rows, "pending_batches": batches, "streams": streams, "refused": refused, "missed": missed, "left_out": omitted}


def days(data):
    import duckdb

    if not list(data.glob("days/*/*.parquet")):
        return {"rows": 0, "agents": {}}
    rows = f"read_parquet('{data}/days/*/*.parquet')"
    found = duckdb.sql(f"""
        SELECT agent, count(*), sum(sent_bytes)::BIGINT, sum(received_bytes)::BIGINT, count(*) FILTER (outcome = 'failed')
        FROM {rows} GROUP BY agent""").fetchall()
    agents = {agent: dict(zip(("rows", "sent", "received", "failed"), sums)) for agent, *sums in found}
    return {"rows": sum(one["rows"] for one in agents.values()), "agents": agents}


def ended_at(row):
    """The end of a row in ns, like wire::Row::ended_at_ns."""
    if row.get("connection") is None:
        return row["opened_at_ns"] + row.get("lookup_ns", 0)
    times = [row.get("sent_last_at_ns"), row.get("received_last_at_ns")]
    if row["outcome"] != "succeeded":
        times.append(row.get("closed_at_ns"))
    times = [time_ns for time_ns in times if time_ns is not None]
    return max(times) if times else row["opened_at_ns"] + row.get("setup_ns", 0)


def pending(data, to):
    """Writes the rows of batches that are not in a day file yet, as CSV."""
    writer = csv.writer(to)
    writer.writerow(COLUMNS)
    with index(data) as sql:
        for agent, stream, sequence, zero, off, body in sql.execute(
            "SELECT agent, stream, sequence, zero_at, clock_offset_ns, body FROM pending"
        ):
            for row in json.loads(gzip.decompress(body))["rows"]:
                peer = row.get("peer") or {}
                known = row | {
                    "agent": agent, "stream": stream, "sequence": sequence, "clock_offset_ns": off, "last": row.get("last", False),
                    "at_unix_ns": zero + ended_at(row), "peer": peer.get("address"), "peer_port": peer.get("port"),
                }
                writer.writerow([known.get(column) for column in COLUMNS])
    to.flush()


def check(data, accounts, shifts):
    """Checks that each line of an account is exactly one row, and that no other rows exist.

    A row must have the line's agent, program, process, peer, order and time. The sizes of request and response of an
    exchange are unique in its process, so they identify its row. Refused connections and connections without bytes are
    not unique: they are counted.
    """
    import duckdb

    db = duckdb.connect()
    columns = ", ".join(f"{name}::{kind} AS {name}" for name, kind in COLUMNS.items())
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as pending_csv:
        pending(data, pending_csv)
        types = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items()) + "}"
        db.execute(f"CREATE TABLE found AS SELECT *, NULL::VARCHAR AS day FROM read_csv('{pending_csv.name}', header = true, columns = {types})")
    pending_rows = db.sql("SELECT count(*) FROM found").fetchall()[0][0]
    if list(data.glob("days/*/*.parquet")):
        db.execute(f"""
            INSERT INTO found SELECT {columns}, split_part(filename, '/', -2)
            FROM read_parquet('{data}/days/*/*.parquet', filename = true)""")
    # The zero of the monotonic clock by the manager's wall clock, which is this machine's: only the agents' clocks are
    # shifted.
    zero = time.time_ns() - time.monotonic_ns()
    db.execute(f"""
        CREATE TABLE account AS
        SELECT split_part(parse_filename(filename), '.', 1) AS agent, split_part(parse_filename(filename), '.', 2) AS program,
               * EXCLUDE (filename), begun_ns + {zero} AS begun, ended_ns + {zero} AS ended
        FROM read_csv('{accounts}/*.csv', filename = true)""")
    one = lambda query: db.sql(query).fetchall()[0][0]

    # Pairs of account lines and rows.
    db.execute("""
        CREATE TABLE pair AS
        SELECT a.*, f.agent IS NOT NULL AS is_stored, f.connection AS of_connection, f.stream AS of_stream, f.exchange AS at_place,
               f.last AS is_last, f.at_unix_ns AS row_time, f.clock_offset_ns AS clock_off
        FROM account a LEFT JOIN found f
          ON f.agent = a.agent AND f.program = a.program AND f.pid = a.pid AND f.side = 'client' AND f.peer = '127.0.0.1'
         AND f.peer_port = a.port AND f.sent_bytes = a.sent AND f.received_bytes = a.received AND f.outcome = 'succeeded'
        WHERE a.kind = 'exchange'""")
    result = {
        "accounts": one("SELECT count(DISTINCT (agent, program)) FROM account"),
        "agents": one("SELECT count(DISTINCT agent) FROM account"),
        "expected": one("SELECT count(*) FROM account"),
        "found": one("SELECT count(*) FROM found"),
        "pending": pending_rows,
        "streams": one("SELECT count(DISTINCT stream) FROM found"),
        "exchanges": one("SELECT count(*) FROM account WHERE kind = 'exchange'"),
        "missing": one("SELECT count(*) FROM pair WHERE NOT is_stored"),
        "duplicated": one("""SELECT count(*) FROM (SELECT 1 FROM pair WHERE is_stored
                          GROUP BY agent, program, pid, sent, received HAVING count(*) > 1)"""),
        "wrong_order": one("SELECT count(*) FROM pair WHERE is_stored AND (at_place <> exchange OR is_last <> (last = 1))"),
        # Connections of the accounts and of the rows correspond one to one.
        "wrong_connection": one("""SELECT count(*) FROM (SELECT 1 FROM pair WHERE is_stored GROUP BY agent, program, pid, connection
                                   HAVING count(DISTINCT (of_stream, of_connection)) > 1)""")
        + one("""SELECT count(*) FROM (SELECT 1 FROM pair WHERE is_stored GROUP BY agent, of_stream, of_connection
                 HAVING count(DISTINCT (program, pid, connection)) > 1)"""),
        "wrong_time": one(f"""SELECT count(*) FROM pair WHERE is_stored
                               AND (row_time < begun - {TOLERANCE_NS} OR row_time > ended + {TOLERANCE_NS})"""),
        "wrong_day": one("""SELECT count(*) FROM found WHERE day IS NOT NULL
                            AND day <> strftime(make_timestamp(at_unix_ns // 1000), '%Y-%m-%d')"""),
    }
    result["unexpected"] = result["found"] - one("SELECT count(*) FROM pair WHERE is_stored")
    for kind, condition in (
        ("refused", "outcome = 'failed' AND error = 'ECONNREFUSED'"),
        ("unused", "outcome = 'unused'"),
    ):
        # By process and port: the same count as in the account, and the same first and last time within the tolerance.
        counts = lambda table, where, port, at: f"""SELECT agent, program, pid, {port} AS port, count(*) AS n,
            min({at}) AS first_at, max({at}) AS last_at FROM {table} WHERE {where} GROUP BY ALL"""
        wrong = one(f"""
            SELECT count(*) FROM ({counts('account', f"kind = '{kind}'", 'port', 'ended')}) a
            FULL JOIN ({counts('found', condition, 'peer_port', 'at_unix_ns')}) f USING (agent, program, pid, port)
            WHERE a.n IS DISTINCT FROM f.n OR abs(a.first_at - f.first_at) > {TOLERANCE_NS}
               OR abs(a.last_at - f.last_at) > {TOLERANCE_NS}""")
        result[f"{kind}_wrong"] = wrong
        result[kind] = one(f"SELECT count(*) FROM account WHERE kind = '{kind}'")
        result["unexpected"] -= one(f"SELECT count(*) FROM found WHERE {condition}")

    # Difference of the end of each exchange by the program's clock and by the row.
    differences = [f"quantile_cont(abs(row_time - ended), {share})" for share in (0.5, 0.99, 1.0)]
    result["time_error_ms"] = [round(float(value or 0) / 1e6, 3) for value in db.sql(f"SELECT {', '.join(differences)} FROM pair WHERE is_stored").fetchall()[0]]
    # The clock offsets that the manager has measured must equal the shifts of the agents' wall clocks.
    shifts = json.loads(Path(shifts).read_text())
    wrong, unknown = 0, 0
    for agent, low, high in db.sql("SELECT agent, min(clock_off), max(clock_off) FROM pair WHERE is_stored GROUP BY agent").fetchall():
        if low is None:
            unknown += 1
            continue
        wrong += any(abs(value - shifts[agent] * NS) > TOLERANCE_NS for value in (low, high))
    result["clocks_wrong"], result["clocks_unknown"] = wrong, unknown
    result["clocks_s"] = [min(shifts.values()), max(shifts.values())]

    with index(data) as sql:
        sums = 'sum("rows"), sum(records_lost), sum(connections_left_out), sum(rows_dropped), sum(rows_filtered), sum(rows_not_drawn)'
        rows, lost, left_out, dropped, filtered, not_drawn = (value or 0 for value in sql.execute(f"SELECT {sums} FROM agents").fetchone())
        parts, bytes_ = sql.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM parts").fetchone()
    result |= {
        "index_rows": rows, "lost_records": lost + left_out, "dropped_rows": dropped, "filtered_rows": filtered,
        "not_drawn_rows": not_drawn, "parts": parts, "bytes": bytes_,
        # Every generated row is stored, dropped or omitted by the settings.
        "unaccounted": abs(result["expected"] - result["found"] - dropped - filtered - not_drawn) + abs(rows - result["found"]),
    }
    if result["missing"]:
        result["first_missing"] = db.sql(
            "SELECT agent, program, connection, exchange, begun_ns FROM pair WHERE NOT is_stored ORDER BY begun LIMIT 5").fetchall()
        result["missing_agents"] = one("SELECT count(DISTINCT agent) FROM pair WHERE NOT is_stored")
    if result["unexpected"]:
        result["outcomes"] = db.sql("SELECT side, outcome, error, program, count(*) FROM found GROUP BY ALL ORDER BY 5 DESC LIMIT 12").fetchall()
    return result


def differing(data, other, *without):
    """Rows of all day files of two managers that have ended: how many, and how many only one of them has.

    `without`: columns that are not compared.
    """
    import duckdb

    db = duckdb.connect()
    for name, folder in (("a", data), ("b", Path(other))):
        omitted = f"EXCLUDE ({', '.join(without)})" if without else ""
        db.execute(f"CREATE TABLE {name} AS SELECT * {omitted} FROM read_parquet('{folder}/days/*/*.parquet')")
    one = lambda query: db.sql(query).fetchall()[0][0]
    return {
        "rows": [one("SELECT count(*) FROM a"), one("SELECT count(*) FROM b")],
        "differing": one("SELECT count(*) FROM ((FROM a EXCEPT ALL FROM b) UNION ALL (FROM b EXCEPT ALL FROM a))"),
        "repeated": one("SELECT count(*) - count(DISTINCT (stream, sequence, number)) FROM a"),
    }


def clocks(data):
    """Rows, and those with a measured clock offset, of all day files."""
    import duckdb

    rows, measured = duckdb.sql(f"SELECT count(*), count(clock_offset_ns) FROM read_parquet('{data}/days/*/*.parquet')").fetchall()[0]
    return {"rows": rows, "measured": measured}


verbs = {"differing": differing, "clocks": clocks, "stored": stored, "days": days, "check": check}
print(json.dumps(verbs[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])))
