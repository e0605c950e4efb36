//! The live screen: a thread that owns the terminal, so that a slow one never holds up the capture.
//!
//! ```text
//!   watching thread -- Screen::show, Screen::note --> state (the latest only) --> this thread: draw, keys
//!         ^------------ SIGINT ---------- q, Ctrl-C <--------------------------------'
//! ```
//!
//! The terminal is given back on every way out: when the screen is closed or dropped, and by the panic hook before a
//! panic's message is printed. A signal that asks to end is seen by the watching thread, which closes the screen.

mod draw;
mod plot;

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};

use super::view::View;
use crate::terminal;
use draw::{Look, Picture};

/// An open screen.
pub struct Screen {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The screen is to be closed.
    closes: AtomicBool,
}

#[derive(Default)]
struct State {
    views: Vec<Arc<View>>,
    note: String,
    /// Turns until the note goes.
    note_turns: u32,
    waiting: String,
    is_new: bool,
}

impl State {
    fn age_note(&mut self) {
        self.note_turns = self.note_turns.saturating_sub(1);
        if self.note_turns == 0 && !self.note.is_empty() {
            self.note.clear();
            self.is_new = true;
        }
    }
}

impl Screen {
    /// Takes the terminal over. `waiting` is shown until there is a view.
    ///
    /// # Errors
    /// The terminal cannot be set up, or no thread can be started.
    pub fn open(waiting: String) -> io::Result<Screen> {
        let shared = Arc::new(Shared::default());
        *state(&shared) = State { waiting, is_new: true, ..State::default() };
        let look = terminal::style();
        let look = Look { color: look.color, unicode: look.unicode };
        give_back_on_panic();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let (alive, ended) = channel();
        let theirs = shared.clone();
        let started = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide).and_then(|()| {
            thread::Builder::new().name("screen".into()).spawn(move || {
                // A terminal that is gone cannot be told anything; the watch goes on without it.
                let _ = keep(&theirs, look, alive);
                give_back();
            })
        });
        match started {
            Ok(_) => Ok(Screen { shared, ended }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Whether the terminal still takes what is drawn.
    pub fn is_alive(&self) -> bool {
        !matches!(self.ended.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Shows these watches from now on; one at a time, if there are several.
    pub fn show(&self, views: Vec<Arc<View>>) {
        let mut state = state(&self.shared);
        (state.views, state.is_new) = (views, true);
    }

    /// Shows a message for a while, or until the next.
    pub fn note(&self, text: &str) {
        let mut state = state(&self.shared);
        (state.note, state.note_turns, state.is_new) = (text.to_owned(), NOTE_TURNS, true);
    }
}

impl Drop for Screen {
    /// Gives the terminal back. One that takes nothing (Ctrl-S) is waited for a little, and then left.
    fn drop(&mut self) {
        self.shared.closes.store(true, Ordering::SeqCst);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(PATIENCE) {
            give_back();
        }
    }
}

/// Draws and listens until the screen is closed. `_alive` tells by its end that this has ended, after `give_back`.
fn keep(shared: &Shared, look: Look, _alive: Sender<()>) -> io::Result<()> {
    let _given_back = GivenBack;
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut shown = 0;
    while !shared.closes.load(Ordering::SeqCst) && IS_TAKEN.load(Ordering::SeqCst) {
        let mut is_new = false;
        if event::poll(TURN)? {
            match event::read()? {
                Event::Key(key) => is_new = take_key(key, shared, &mut shown),
                Event::Resize(..) => is_new = true,
                _ => {}
            }
        }
        let (views, note, waiting) = {
            let mut state = state(shared);
            state.age_note();
            if !std::mem::take(&mut state.is_new) && !is_new {
                continue;
            }
            (state.views.clone(), state.note.clone(), state.waiting.clone())
        };
        shown %= views.len().max(1);
        draw(&mut terminal, &views, shown, &note, &waiting, look)?;
    }
    Ok(())
}

fn draw(
    terminal: &mut Terminal<CrosstermBackend<Stdout>>,
    views: &[Arc<View>],
    shown: usize,
    note: &str,
    waiting: &str,
    look: Look,
) -> io::Result<()> {
    let view = views.get(shown).map(|view| &**view);
    let picture = Picture { view, place: (shown + 1, views.len()), note, waiting };
    terminal.draw(|frame| draw::draw(frame, &picture, look)).map(drop)
}

/// True when another watch is to be shown.
fn take_key(key: KeyEvent, shared: &Shared, shown: &mut usize) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => ask_to_end(),
        KeyCode::Char('q' | 'Q') => ask_to_end(),
        KeyCode::Tab | KeyCode::Right | KeyCode::Down => {
            *shown += 1;
            return true;
        }
        KeyCode::BackTab | KeyCode::Left | KeyCode::Up => {
            *shown += state(shared).views.len().max(1) - 1;
            return true;
        }
        KeyCode::Char('l') if is_control => return true,
        _ => {}
    }
    false
}

/// As Ctrl-C does where the terminal still turns it into a signal: whoever waits for anything hears of it.
fn ask_to_end() {
    // Raising a signal that is handled cannot fail.
    let _ = raise(Signal::SIGINT);
}

fn state(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A panic's message is for the terminal as it was.
fn give_back_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |told| {
            give_back();
            before(told);
        }));
    });
}

/// Gives the terminal back as it was, once; may be called from anywhere.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let mut stdout = io::stdout();
        // There is nobody to tell if it fails.
        let _ = execute!(stdout, LeaveAlternateScreen, cursor::Show);
        let _ = stdout.flush();
        let _ = disable_raw_mode();
    }
}

/// Gives the terminal back before the thread is seen to have ended.
struct GivenBack;

impl Drop for GivenBack {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether the terminal is ours. There is one of it, so there is one of this.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// How soon a key or a new picture is noticed.
const TURN: Duration = Duration::from_millis(50);
/// Turns for which a note is shown: about ten seconds.
const NOTE_TURNS: u32 = 200;
/// How long a terminal that takes nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The hook runs before the panic's message and before anything unwinds.
    #[test]
    fn panic_restores_the_terminal() {
        give_back_on_panic();
        IS_TAKEN.store(true, Ordering::SeqCst);
        assert!(thread::spawn(|| panic!("a test's own")).join().is_err());
        assert!(!IS_TAKEN.load(Ordering::SeqCst));
    }
}
