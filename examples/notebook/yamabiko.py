# %% [markdown]
# # A run of Yamabiko, read with DuckDB and polars
#
# The tables of a run are Parquet files. This notebook reads them, holds their sums against `summary.json`, and draws the
# main figures again: concurrent connections from both vantage points, response time by percentile, round-trip times, and response
# times over time. `yamabiko runs columns` lists every column.
#
# Set `RUN` to a run's folder, or leave it: then it is the newest stored run.

# %%
import json
import os
from pathlib import Path

import duckdb
import matplotlib.pyplot as plt
import polars as pl


def book() -> Path:
    """Where runs are kept, as the program itself decides it."""
    if os.environ.get("YAMABIKO_RUNS"):
        return Path(os.environ["YAMABIKO_RUNS"])
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(data) / "yamabiko/runs"


RUN = os.environ.get("YAMABIKO_RUN")
run = Path(RUN) if RUN else max(path.parent for path in book().glob("*/summary.json"))
summary = json.loads((run / "summary.json").read_text())
tables = sorted(path.stem for path in run.glob("*.parquet"))
print(run.name, summary["validity"]["verdict"], *tables, sep="\n  ")

# %% [markdown]
# ## The same figures, from the rows
#
# Response time, the headline, counts from the moment at which the schedule meant a request to start. The requests of the
# measured phase are those intended at `measured_from_ns` or later.

# %%
requests = f"'{run}/requests.parquet'"
rows = duckdb.sql(f"""
    SELECT count(*) AS offered,
           count(*) FILTER (cause IS NULL) AS completed,
           count(*) FILTER (cause IS NOT NULL) AS failed,
           quantile_disc(done_at_ns - scheduled_at_ns, [0.5, 0.99]) AS response_ns,
           max(done_at_ns - scheduled_at_ns) AS longest_ns
    FROM {requests}
    WHERE scheduled_at_ns >= {summary['run']['recorded']['measured_from_ns']}
""").fetchall()[0]
offered, completed, failed, (p50_ns, p99_ns), longest_ns = rows
load = summary["load"]
figures = pl.DataFrame(
    {
        "figure": ["offered", "completed", "failed", "p50, ms", "p99, ms", "longest, ms"],
        "rows": [offered, completed, failed, p50_ns / 1e6, p99_ns / 1e6, longest_ns / 1e6],
        "summary.json": [
            load["offered_requests"],
            load["completed"],
            sum(load["failed"].values()),
            load["response_time_ns"]["p50"] / 1e6,
            load["response_time_ns"]["p99"] / 1e6,
            load["response_time_ns"]["max"] / 1e6,
        ],
    },
    strict=False,
)
print(figures)

# %% [markdown]
# ## Connections in process
#
# From the load's own counters, and, where the wire was watched, from packets at the server's end. Lines that part are the
# beginning of a question.

# %%
series = pl.read_parquet(run / "series.parquet")
figure, axis = plt.subplots(figsize=(9, 4))
axis.plot(series["second"] + 1, series["connections_mean"], label="connections, load")
axis.plot(series["second"] + 1, series["in_flight_mean"], label="requests in flight, load")
if "watch_series" in tables:
    wire = pl.read_parquet(run / "watch_series.parquet")
    axis.plot(wire["second"] + 1, wire["connections_mean"], "--", label="connections, wire")
    axis.plot(wire["second"] + 1, wire["in_flight_mean"], "--", label="transactions, wire")
axis.set(xlabel="seconds since the run's zero", ylabel="in process", ylim=(0, None))
axis.set_title("Connections in process")
axis.legend()
in_process = figure

# %% [markdown]
# ## Response time by percentile
#
# The axis is stretched towards 100 %, as HdrHistogram's plots are: each step to the right is ten times rarer.

# %%
shares = [1 - 10 ** (-step / 20) for step in range(0, 81)]
curves = duckdb.sql(f"""
    SELECT quantile_disc(done_at_ns - scheduled_at_ns, {shares}) AS response_ns,
           quantile_disc(done_at_ns - started_at_ns, {shares}) AS service_ns
    FROM {requests}
""").fetchall()[0]
figure, axis = plt.subplots(figsize=(9, 4))
for name, values in zip(("response time (from intended)", "service time (from started)"), curves):
    axis.plot([1 / (1 - share) for share in shares], [value / 1e6 for value in values], label=name)
axis.set(xscale="log", yscale="log", ylabel="ms", xlabel="percentile")
axis.set_xticks([1, 10, 100, 1000, 10000], ["0", "90", "99", "99.9", "99.99"])
axis.set_title("Response time by percentile")
axis.legend()
by_percentile = figure

# %% [markdown]
# ## Round-trip times
#
# Of handshakes: as the load's clock saw them (connect called to connection established) and as packets show them at the
# server's end, with the quantiles that were asked of the path.

# %%
figure, axis = plt.subplots(figsize=(9, 4))


def draw_cdf(values_ns: pl.Series, name: str) -> None:
    values = values_ns.drop_nulls().sort()
    if len(values):
        axis.step(values / 1e6, [(at + 1) / len(values) for at in range(len(values))], where="post", label=name)


connect = pl.scan_parquet(run / "requests.parquet").select(pl.col("connected_at_ns") - pl.col("started_at_ns")).collect()
draw_cdf(connect["connected_at_ns"], "got, load")
if "connections" in tables:
    draw_cdf(pl.read_parquet(run / "connections.parquet", columns=["handshake_rtt_ns"])["handshake_rtt_ns"], "got, wire")
if "path" in summary:
    asked = summary["path"]["configured_rtt_ns"]
    quantiles = [("min", 0), ("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("max", 1)]
    axis.plot([asked[name] / 1e6 for name, _ in quantiles], [share for _, share in quantiles], "x", label="asked")
axis.set(xscale="log", xlabel="ms", ylabel="share of handshakes", ylim=(0, 1.02))
axis.set_title("Round-trip times")
axis.legend()
round_trips = figure

# %% [markdown]
# ## Response times over time
#
# How the times of each second are distributed: eight buckets a doubling.

# %%
cells = pl.DataFrame(duckdb.sql(f"""
    SELECT done_at_ns // 1000000000 AS second, floor(log2((done_at_ns - scheduled_at_ns) / 1e6) * 8) / 8 AS doubling,
           count(*) AS count
    FROM {requests} WHERE cause IS NULL AND done_at_ns > scheduled_at_ns GROUP BY ALL
""").fetchnumpy())
figure, axis = plt.subplots(figsize=(9, 4))
shown = axis.scatter(cells["second"] + 0.5, 2 ** cells["doubling"], c=cells["count"], marker="s", s=12, cmap="viridis")
axis.set(yscale="log", ylabel="ms", xlabel="seconds since the run's zero")
axis.set_title("Response times of each second")
figure.colorbar(shown, label="requests")
over_time = figure

# %%
if os.environ.get("YAMABIKO_FIGURES"):
    folder = Path(os.environ["YAMABIKO_FIGURES"])
    for name in ("in_process", "by_percentile", "round_trips", "over_time"):
        globals()[name].savefig(folder / f"{name}.png", dpi=80)
