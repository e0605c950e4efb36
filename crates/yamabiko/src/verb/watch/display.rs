//! What `yamabiko watch` shows while it captures: the live screen, a line a second, or messages only.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;

use report::figures::plain;

use super::screen::Screen;
use super::view::View;
use crate::terminal::print_message;

/// Shows figures and messages until the capture ends.
pub enum Display {
    /// stdout is a terminal. The latest messages are repeated on stderr when the terminal is restored.
    Screen {
        /// The screen.
        screen: Screen,
        /// The latest messages.
        messages: VecDeque<String>,
    },
    /// A line a second on stderr.
    Lines,
    /// Messages on stderr only: stdout is for one document.
    Silent,
}

impl Display {
    /// The screen if the terminal can show it and `plain_lines` is false, otherwise lines. `waiting` is shown until
    /// there are figures.
    pub fn open(json: bool, plain_lines: bool, waiting: String) -> Display {
        if json {
            return Display::Silent;
        }
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !plain_lines
            && !is_dumb
            && std::io::stdout().is_terminal()
            && let Ok(screen) = Screen::open(waiting.clone())
        {
            return Display::Screen { screen, messages: VecDeque::new() };
        }
        print_message(waiting);
        Display::Lines
    }

    /// Shows a message.
    pub fn note(&mut self, text: &str) {
        match self {
            Display::Screen { screen, messages } => {
                screen.note(text);
                if messages.len() == REPEATED_MESSAGES_MAX {
                    messages.pop_front();
                }
                messages.push_back(text.to_owned());
            }
            Display::Lines | Display::Silent => print_message(plain(text)),
        }
    }

    /// Shows current figures: all `views` on the screen, the `updated` ones as lines.
    pub fn show(&mut self, views: &[Arc<View>], updated: &[Arc<View>]) {
        if matches!(self, Display::Screen { screen, .. } if !screen.is_alive()) {
            // The terminal was closed; stderr may still be read.
            std::mem::replace(self, Display::Lines).close();
        }
        match self {
            Display::Screen { screen, .. } => screen.show(views.to_vec()),
            Display::Lines => {
                for view in updated {
                    let host = view.host.as_ref().map(|host| format!("{}: ", plain(host))).unwrap_or_default();
                    print_message(format_args!("{host}{}", plain(&view.line())));
                }
            }
            Display::Silent => {}
        }
    }

    /// Restores the terminal and repeats the latest messages on stderr.
    pub fn close(self) {
        let Display::Screen { screen, messages } = self else { return };
        // Not `drop(screen)`: in a build without the feature `tui` the screen has no destructor, which clippy reports.
        {
            let _dropped_here = screen;
        }
        for text in messages {
            print_message(plain(&text));
        }
    }
}

/// Most messages that are repeated on stderr when the screen is closed.
const REPEATED_MESSAGES_MAX: usize = 20;
