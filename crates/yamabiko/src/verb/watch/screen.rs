//! The live screen: a thread draws on the terminal, so that a slow terminal never delays the capture.
//!
//! ```text
//!   capturing thread -- Screen::show, Screen::note --> state (the latest only) --> screen thread: draw, keys
//!         ^------------ SIGINT ---------- q, Ctrl-C <---------------------------------'
//! ```
//!
//! The terminal is restored on every exit: when the screen is dropped, and by the panic hook before a panic's message
//! is printed. The capturing thread handles SIGINT and SIGTERM and closes the screen.

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
use draw::{Capabilities, Picture};

/// An open screen.
pub struct Screen {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The screen is being closed.
    is_closing: AtomicBool,
}

#[derive(Default)]
struct State {
    views: Vec<Arc<View>>,
    note: String,
    /// Turns of the screen thread until the note disappears.
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
    /// Sets up the terminal and starts the screen thread. `waiting` is shown until there is a view.
    ///
    /// # Errors
    /// The terminal cannot be set up, or no thread can be started.
    pub fn open(waiting: String) -> io::Result<Screen> {
        let shared = Arc::new(Shared::default());
        *state(&shared) = State { waiting, is_new: true, ..State::default() };
        let style = terminal::style();
        let capabilities = Capabilities { color: style.color, unicode: style.unicode };
        restore_on_panic();
        enable_raw_mode()?;
        IS_SET_UP.store(true, Ordering::SeqCst);
        let (alive, ended) = channel();
        let thread_shared = shared.clone();
        let started = execute!(io::stdout(), EnterAlternateScreen, cursor::Hide).and_then(|()| {
            thread::Builder::new().name("screen".into()).spawn(move || {
                // An error means that the terminal was closed; the capture continues without it.
                let _ = run_screen(&thread_shared, capabilities, alive);
                restore_terminal();
            })
        });
        match started {
            Ok(_) => Ok(Screen { shared, ended }),
            Err(error) => {
                restore_terminal();
                Err(error)
            }
        }
    }

    /// Whether the screen thread still draws: the terminal has not failed.
    pub fn is_alive(&self) -> bool {
        !matches!(self.ended.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Replaces the views. One of them is shown at a time.
    pub fn show(&self, views: Vec<Arc<View>>) {
        let mut state = state(&self.shared);
        (state.views, state.is_new) = (views, true);
    }

    /// Shows a message for ten seconds, or until the next message.
    pub fn note(&self, text: &str) {
        let mut state = state(&self.shared);
        (state.note, state.note_turns, state.is_new) = (text.to_owned(), NOTE_TURNS, true);
    }
}

impl Drop for Screen {
    /// Restores the terminal. If the screen thread is blocked (Ctrl-S), this waits at most [`CLOSE_TIMEOUT`] for it.
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(CLOSE_TIMEOUT) {
            restore_terminal();
        }
    }
}

/// Draws and reads keys until the screen is closed. Dropping `_alive`, after `restore_terminal`, signals the end.
fn run_screen(shared: &Shared, capabilities: Capabilities, _alive: Sender<()>) -> io::Result<()> {
    let _restore = RestoreOnDrop;
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    let mut shown = 0;
    while !shared.is_closing.load(Ordering::SeqCst) && IS_SET_UP.load(Ordering::SeqCst) {
        let mut is_new = false;
        if event::poll(POLL_TIMEOUT)? {
            match event::read()? {
                Event::Key(key) => is_new = handle_key(key, shared, &mut shown),
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
        draw(&mut terminal, &views, shown, &note, &waiting, capabilities)?;
    }
    Ok(())
}

fn draw(
    terminal: &mut Terminal<CrosstermBackend<Stdout>>,
    views: &[Arc<View>],
    shown: usize,
    note: &str,
    waiting: &str,
    capabilities: Capabilities,
) -> io::Result<()> {
    let view = views.get(shown).map(|view| &**view);
    let picture = Picture { view, position: (shown + 1, views.len()), note, waiting };
    terminal.draw(|frame| draw::draw(frame, &picture, capabilities)).map(drop)
}

/// Handles a key. True if the screen must be redrawn.
fn handle_key(key: KeyEvent, shared: &Shared, shown: &mut usize) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => raise_interrupt(),
        KeyCode::Char('q' | 'Q') => raise_interrupt(),
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

/// Sends SIGINT to this process: in raw mode the terminal no longer turns Ctrl-C into the signal.
fn raise_interrupt() {
    // Raising a signal that is handled cannot fail.
    let _ = raise(Signal::SIGINT);
}

fn state(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs a panic hook that restores the terminal before the panic's message is printed.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore_terminal();
            before(info);
        }));
    });
}

/// Restores the terminal, once; may be called from any thread.
fn restore_terminal() {
    if IS_SET_UP.swap(false, Ordering::SeqCst) {
        let mut stdout = io::stdout();
        // A failure cannot be reported: the terminal is gone.
        let _ = execute!(stdout, LeaveAlternateScreen, cursor::Show);
        let _ = stdout.flush();
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal when dropped, before the end of the thread is signalled.
struct RestoreOnDrop;

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Whether the terminal is set up for the screen. A process has one terminal, so this is global.
static IS_SET_UP: AtomicBool = AtomicBool::new(false);
/// How long to wait for a key before new views are checked.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Turns of [`POLL_TIMEOUT`] for which a note is shown: about ten seconds.
const NOTE_TURNS: u32 = 200;
/// How long to wait for the screen thread when the screen is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The hook runs before the panic's message and before anything unwinds.
    #[test]
    fn panic_restores_the_terminal() {
        restore_on_panic();
        IS_SET_UP.store(true, Ordering::SeqCst);
        assert!(thread::spawn(|| panic!("raised by the test")).join().is_err());
        assert!(!IS_SET_UP.load(Ordering::SeqCst));
    }
}
