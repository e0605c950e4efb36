//! The files of the live page, embedded in the program.

use crate::plot;

/// One file.
#[derive(Clone, Debug)]
pub struct Asset {
    /// File name, below the root.
    pub name: &'static str,
    /// Media type.
    pub kind: &'static str,
    /// Contents.
    pub text: String,
}

/// Style and scripts; [`html`] names them.
pub fn assets() -> Vec<Asset> {
    let asset = |name, kind, text| Asset { name, kind, text };
    vec![
        asset("live.css", STYLE_KIND, styles()),
        library(),
        asset("live.js", SCRIPT_KIND, [FIGURES, DOM, SCRIPT].concat()),
    ]
}

/// The chart library, with its licence.
pub(crate) fn library() -> Asset {
    Asset { name: "uplot.js", kind: SCRIPT_KIND, text: format!("/*\nuPlot\n\n{LICENSE}*/\n{LIBRARY}") }
}

/// Common styles of pages with charts.
pub(crate) fn styles() -> String {
    [LIBRARY_STYLE, plot::COLORS_CSS, plot::STYLE_CSS, PAGE_STYLE, STYLE].concat()
}

/// The HTML of the page. `root` is the relative path to the files: empty, or `../` repeated.
pub fn html(root: &str) -> String {
    assert!(root.split('/').all(|part| part.is_empty() || part == ".."), "a root is steps upwards: {root}");
    HTML.replace("{root}", root)
}

pub(crate) const STYLE_KIND: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT_KIND: &str = "text/javascript; charset=utf-8";
const HTML: &str = include_str!("../../assets/live.html");
const STYLE: &str = include_str!("../../assets/live.css");
const PAGE_STYLE: &str = include_str!("../../assets/page.css");
/// Script that formats figures.
pub(crate) const FIGURES: &str = include_str!("../../assets/figures.js");
/// Script that creates elements of pages.
pub(crate) const DOM: &str = include_str!("../../assets/dom.js");
const SCRIPT: &str = include_str!("../../assets/live.js");
const LIBRARY: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const LIBRARY_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const LICENSE: &str = include_str!("../../assets/uplot/LICENSE");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_no_external_or_inline_resources() {
        let page = html("../../");
        assert!(
            page.contains("href=\"../../live.css\"")
                && page.contains("src=\"../../live.js\"")
                && !page.contains("{root}")
        );
        // The content security policy forbids inline resources.
        for inline in ["<script>", "<style", " style=", " onclick", " onload", "http:", "https:", "//"] {
            assert!(!page.contains(inline), "{inline}");
        }
        for asset in assets() {
            let text = &asset.text;
            // The URL of the SVG namespace is a name, and URLs in comments are not fetched.
            let addresses = text.matches("http").count() - text.matches("http://www.w3.org/2000/svg").count();
            let library_link = text.matches("https://github.com/leeoniya/uPlot").count();
            assert_eq!(addresses, library_link, "{}", asset.name);
            assert!(!text.contains("@import") && !text.contains("url("), "{}", asset.name);
        }
    }

    #[test]
    fn scripts_never_write_html_from_text() {
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("] {
            assert!(![SCRIPT, FIGURES, DOM].iter().any(|script| script.contains(forbidden)), "{forbidden}");
        }
    }
}
