//! The files of the live page: all that a browser needs, carried in the program.

use crate::plot;

/// One file.
#[derive(Clone, Debug)]
pub struct Asset {
    /// Its name, below the root.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What is in it.
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

/// The library that draws, with its licence.
pub(crate) fn library() -> Asset {
    Asset { name: "uplot.js", kind: SCRIPT_KIND, text: format!("/*\nuPlot\n\n{LICENSE}*/\n{LIBRARY}") }
}

/// What the styles of pages that draw begin with.
pub(crate) fn styles() -> String {
    [LIBRARY_STYLE, plot::COLORS_CSS, plot::STYLE_CSS, PAGE_STYLE, STYLE].concat()
}

/// The page itself, at a place from which `root` leads to the files: empty, or `../` so many times.
pub fn html(root: &str) -> String {
    assert!(root.split('/').all(|part| part.is_empty() || part == ".."), "a root is steps upwards: {root}");
    HTML.replace("{root}", root)
}

pub(crate) const STYLE_KIND: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT_KIND: &str = "text/javascript; charset=utf-8";
const HTML: &str = include_str!("../../assets/live.html");
const STYLE: &str = include_str!("../../assets/live.css");
const PAGE_STYLE: &str = include_str!("../../assets/page.css");
/// How figures are written.
pub(crate) const FIGURES: &str = include_str!("../../assets/figures.js");
/// What pages build themselves of.
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
        // The content policy would refuse them.
        for inline in ["<script>", "<style", " style=", " onclick", " onload", "http:", "https:", "//"] {
            assert!(!page.contains(inline), "{inline}");
        }
        for asset in assets() {
            let text = &asset.text;
            // A namespace is a name, and what stands in a comment is not fetched.
            let addresses = text.matches("http").count() - text.matches("http://www.w3.org/2000/svg").count();
            let told = text.matches("https://github.com/leeoniya/uPlot").count();
            assert_eq!(addresses, told, "{}", asset.name);
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
