//! The documentation page that lists every column, generated from the table definitions.

use std::fmt::Write;

use super::columns;

/// The text of `docs/concepts/columns.md`. `cargo run -p store --example columns > docs/concepts/columns.md` writes the
/// page; a test compares it with this text.
pub fn columns_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for table in columns() {
        let _ = write!(page, "\n## {}.parquet\n\n{}\n\n", table.name, table.row);
        page.push_str("| column | type | unit | null | meaning |\n|---|---|---|---|---|\n");
        for column in table.columns {
            let null = if column.nullable { "may be" } else { "never" };
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {null} | {} |",
                column.name,
                column.kind.sql(),
                column.unit,
                column.about
            );
        }
    }
    page.push_str(USE);
    page
}

const INTRODUCTION: &str = "\
# The columns of a run's tables

<!-- Made from the code by `cargo run -p store --example columns`. Edit the records in crates/schema/src, not this page. -->

Every table is a Parquet file (snappy) that DuckDB, pandas, polars, ClickHouse and Spark read as it is. Integers are
signed 64 bits, so that a difference of two columns may be negative. A value that does not exist is null, never 0.
Each file carries this list in its own metadata under the key `yamabiko.columns` (JSON); `yamabiko runs columns` prints it.

While a run goes, a table is a folder of parts (`requests/000001.parquet`, `requests/000002.parquet`, ..). They become
one file when the run ends. After a crash the parts stay: read `requests/*.parquet` instead of `requests.parquet`. A
file named `*.unfinished` was being written at that moment and cannot be read.
";

const USE: &str = "
## In use

Response time, the headline, is counted from the scheduled time of the request:

```sql
SELECT quantile_cont(done_at_ns - scheduled_at_ns, 0.99) / 1e6 AS response_p99_ms,
       quantile_cont(done_at_ns - started_at_ns, 0.99) / 1e6 AS service_p99_ms,
       quantile_cont(started_at_ns - scheduled_at_ns, 0.99) / 1e6 AS send_lag_p99_ms,
       count(*) FILTER (cause IS NOT NULL) AS failed
FROM 'requests.parquet';
```

Rows of the warm-up are in the table. The load begins 50 ms after the run's zero, or later: when idle open
connections are established, several processes are started, or very many different requests are prepared. The
measured phase begins `warmup_s` of summary.json after that, at `run.recorded.measured_from_ns`, and lasts
`duration_s`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_page_in_docs_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/columns.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == columns_page(), "renew it: cargo run -p store --example columns > docs/concepts/columns.md");
    }
}
