//! Prints docs/concepts/columns.md.

fn main() {
    print!("{}", store::columns_page());
}
