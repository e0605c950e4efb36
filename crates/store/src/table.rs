//! The list of all stored tables, and their documentation page. Each table is defined at its record by
//! `schema::record!`.

mod page;

use schema::table::{Record, Table};
use schema::{
    CacheExchange, ConnectionRecord, DistributionRecord, FleetRow, Http2FrameRow, QuicConnectionRecord, RequestRecord,
    SecondRecord, ServerSecond, ServerWaitRow, ShareRow, TapExchange, TcpSampleRow, WatchSecond, WireRequest,
};

pub use page::columns_page;

/// Every table that is stored.
pub fn columns() -> Vec<Table> {
    vec![
        RequestRecord::table(),
        SecondRecord::table(),
        DistributionRecord::table(),
        ServerSecond::table(),
        ConnectionRecord::table(),
        QuicConnectionRecord::table(),
        WireRequest::table(),
        WatchSecond::table(),
        TapExchange::table(),
        TcpSampleRow::table(),
        ServerWaitRow::table(),
        Http2FrameRow::table(),
        ShareRow::table(),
        CacheExchange::table(),
        FleetRow::table(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_are_unique_and_times_carry_their_unit() {
        for table in columns() {
            let mut names: Vec<_> = table.columns.iter().map(|column| &column.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
            for column in table.columns {
                assert_eq!(column.unit == "ns", column.name.ends_with("_ns"), "{}", column.name);
                assert_eq!(column.nullable, column.about.contains("Null"), "{}", column.name);
            }
        }
    }
}
