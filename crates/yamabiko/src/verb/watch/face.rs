//! What is seen of a watch while it goes: the live screen, a line a second, or nothing.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;

use report::figures::plain;

use super::screen::Screen;
use super::view::View;
use crate::terminal::say;

/// Where figures and messages go until the end.
pub enum Face {
    /// stdout is a terminal. What was said is repeated on stderr when the terminal is given back.
    Screen {
        /// The screen.
        screen: Screen,
        /// The latest messages.
        said: VecDeque<String>,
    },
    /// A line a second on stderr.
    Lines,
    /// Messages only: stdout is for one document.
    Silent,
}

impl Face {
    /// The screen where there is a terminal that can show it, unless lines were asked for.
    pub fn open(json: bool, wants_lines: bool, waiting: String) -> Face {
        if json {
            return Face::Silent;
        }
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !wants_lines
            && !is_dumb
            && std::io::stdout().is_terminal()
            && let Ok(screen) = Screen::open(waiting.clone())
        {
            return Face::Screen { screen, said: VecDeque::new() };
        }
        say(waiting);
        Face::Lines
    }

    /// Says something that is not a figure.
    pub fn note(&mut self, text: &str) {
        match self {
            Face::Screen { screen, said } => {
                screen.note(text);
                if said.len() == SAID {
                    said.pop_front();
                }
                said.push_back(text.to_owned());
            }
            Face::Lines | Face::Silent => say(plain(text)),
        }
    }

    /// Shows how things stand: every watch on the screen, the `fresh` ones as lines.
    pub fn show(&mut self, views: &[Arc<View>], fresh: &[Arc<View>]) {
        if matches!(self, Face::Screen { screen, .. } if !screen.is_alive()) {
            // The terminal is gone; someone may still read stderr.
            std::mem::replace(self, Face::Lines).close();
        }
        match self {
            Face::Screen { screen, .. } => screen.show(views.to_vec()),
            Face::Lines => {
                for view in fresh {
                    let host = view.host.as_ref().map(|host| format!("{}: ", plain(host))).unwrap_or_default();
                    say(format_args!("{host}{}", plain(&view.line())));
                }
            }
            Face::Silent => {}
        }
    }

    /// Gives the terminal back.
    pub fn close(self) {
        if let Face::Screen { screen, said } = self {
            drop(screen);
            for text in said {
                say(plain(&text));
            }
        }
    }
}

/// Messages repeated when the screen is closed, at most.
const SAID: usize = 20;
