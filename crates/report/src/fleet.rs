//! The web page of the tap manager: HTML, style and scripts, embedded in the program.
//!
//! The scripts query the manager's API and follow its event stream; these files contain no data of agents. Text from
//! agents is inserted into the page as text, never as HTML: see `assets/dom.js`.

use crate::live::{Asset, DOM, FIGURES, SCRIPT_KIND, STYLE_KIND, library, styles};

/// The HTML of the page, which refers to [`assets`] by name.
pub fn html() -> &'static str {
    include_str!("../assets/fleet.html")
}

/// Style and scripts; [`html`] names them.
pub fn assets() -> Vec<Asset> {
    vec![
        Asset { name: "fleet.css", kind: STYLE_KIND, text: styles() + include_str!("../assets/fleet.css") },
        library(),
        Asset { name: "fleet.js", kind: SCRIPT_KIND, text: [&[FIGURES, DOM], SCRIPTS].concat().concat() },
    ]
}

/// The scripts in the order of concatenation: each uses definitions of those before it.
const SCRIPTS: &[&str] = &[
    include_str!("../assets/fleet.js"),
    include_str!("../assets/fleet_chart.js"),
    include_str!("../assets/fleet_agents.js"),
    include_str!("../assets/fleet_settings.js"),
    include_str!("../assets/fleet_quality.js"),
    include_str!("../assets/fleet_alerts.js"),
    include_str!("../assets/fleet_upkeep.js"),
    include_str!("../assets/fleet_start.js"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_page_has_no_external_or_inline_resources() {
        for name in ["fleet.css", "uplot.js", "fleet.js"] {
            assert!(html().contains(&format!("\"{name}\"")), "{name}");
            assert!(assets().iter().any(|asset| asset.name == name), "{name}");
        }
        // The content security policy forbids inline resources.
        for inline in ["<script>", "<style", " style=", " onclick", " onload", "http:", "https:", "//"] {
            assert!(!html().contains(inline), "{inline}");
        }
        let script = SCRIPTS.concat();
        // The URL of the SVG namespace is a name and is not fetched.
        assert!(!script.replace("http://www.w3.org/2000/svg", "").contains("http"));
        let style = include_str!("../assets/fleet.css");
        assert!(!style.contains("url(") && !style.contains("@import"));
    }

    #[test]
    fn fleet_scripts_never_write_html_from_text() {
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", ".style."]
        {
            assert!(!SCRIPTS.iter().any(|script| script.contains(forbidden)), "{forbidden}");
        }
    }
}
