//! A real browser, controlled over its DevTools protocol.
//!
//! The protocol uses two pipes with a zero byte after each message, so no port is opened and no other process can
//! connect.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};

use super::workspace::{Running, TEST_TIMEOUT, Workspace};

/// Headless Chromium. Dropping this ends all its processes.
pub struct Browser {
    running: Running,
    commands: File,
    messages: Receiver<Value>,
    next: u64,
}

/// One browser tab.
pub struct Tab<'a> {
    browser: &'a mut Browser,
    session: String,
    target: String,
    events: Vec<Value>,
}

impl Browser {
    /// Starts the browser with a profile in the workspace.
    pub fn start(workspace: &Workspace) -> Browser {
        let folder = workspace.file("browser");
        fs::create_dir_all(&folder).unwrap();
        let (to, from) = (folder.join("to"), folder.join("from"));
        for pipe in [&to, &from] {
            mkfifo(pipe, Mode::from_bits_truncate(0o600)).unwrap();
        }
        // Chromium reads commands from descriptor 3 and writes to descriptor 4. The shell opens both and then executes
        // Chromium.
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("exec \"$@\" 3<\"$TO\" 4>\"$FROM\"").arg("sh");
        command.args(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]);
        command.args(["--disable-features=OptimizationHints,MediaRouter,Translate", "--no-proxy-server"]);
        command.args(["--hide-scrollbars", "--remote-debugging-pipe", "--disable-dev-shm-usage"]);
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.env("TO", &to).env("FROM", &from).stdin(Stdio::null()).process_group(0);
        let running = workspace.start_command(command);
        // In the same order as the shell, since opening a FIFO waits for its other end.
        let commands = OpenOptions::new().write(true).open(&to).unwrap();
        let responses = BufReader::new(File::open(&from).unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in responses.split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Browser { running, commands, messages, next: 0 }
    }

    /// Opens a tab of this size in CSS pixels, dark or light.
    pub fn tab(&mut self, width: u32, height: u32, is_dark: bool) -> Tab<'_> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }), &mut Vec::new());
        let target = target["targetId"].as_str().unwrap().to_owned();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = self.call(None, "Target.attachToTarget", attach, &mut Vec::new());
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let mut tab = Tab { browser: self, session, target, events: Vec::new() };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(width, height);
        let scheme = if is_dark { "dark" } else { "light" };
        tab.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        tab
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value, events: &mut Vec<Value>) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let received = self.messages.recv_timeout(left);
            let message = received.unwrap_or_else(|_| panic!("no response to {method}: {}", self.running.stderr()));
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            if message.get("method").is_some() {
                events.push(message);
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The helper processes are in the browser's process group. An error means that they have exited.
        let _ = killpg(Pid::from_raw(self.running.pid()), Signal::SIGKILL);
    }
}

impl Tab<'_> {
    /// Opens a page and waits until it is complete.
    pub fn open(&mut self, url: &str) {
        let response = self.call("Page.navigate", json!({ "url": url }));
        assert!(response.get("errorText").is_none(), "{url}: {response}");
        self.wait_for("document.readyState === 'complete' && location.protocol !== 'about:'");
    }

    /// The value of a JavaScript expression.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let response = self.call("Runtime.evaluate", parameters);
        assert!(response.get("exceptionDetails").is_none(), "{expression}: {response}");
        response["result"]["value"].clone()
    }

    /// Waits until a JavaScript expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.value(&format!("!!({expression})")) != true {
            let page = || "document.body.innerText.slice(0, 2000)";
            assert!(Instant::now() < deadline, "timeout waiting for {expression}\n{}", self.value(page()));
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sets the size of the viewport in CSS pixels; below 500 as a mobile device.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Presses a key, such as `Tab`.
    pub fn press(&mut self, key: &str) {
        let code = if key == "Tab" { 9 } else { 13 };
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", event);
        }
        if key == "Enter" {
            self.call("Input.dispatchKeyEvent", json!({ "type": "char", "key": "Enter", "text": "\r" }));
        }
    }

    /// Writes the page as PNG: the visible part, or with `full_page` from top to bottom.
    pub fn screenshot(&mut self, path: &Path, full_page: bool) {
        // The height of a full page is that of the last frame: a page that has just become shorter needs a new one.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        let response =
            self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": full_page }));
        fs::write(path, STANDARD.decode(response["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// Exceptions, console messages and log entries of the page and the browser.
    pub fn errors_and_warnings(&mut self) -> Vec<String> {
        self.value("1");
        let of = |event: &Value| -> Option<String> {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
                "Log.entryAdded" => Some(parameters["entry"].to_string()),
                _ => None,
            }
        };
        self.events.iter().filter_map(of).collect()
    }

    /// Every requested URL.
    pub fn requests(&mut self) -> Vec<String> {
        self.value("1");
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }

    /// Sends a command of this tab's session.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters, &mut self.events)
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            let close = json!({ "targetId": self.target });
            self.browser.call(None, "Target.closeTarget", close, &mut Vec::new());
        }
    }
}
