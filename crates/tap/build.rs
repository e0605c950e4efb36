//! Compiles the interposer, a shared library in C, which the crate contains as bytes.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=interposer");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("libyamabiko_tap.so");
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("ARCH") == "x86_64" && target("OS") == "linux" {
        compile(&out);
    } else {
        // The library is for one platform; on others the crate reports that there is none.
        std::fs::write(&out, b"").expect("write an empty library");
    }
}

/// One compiler call for all sources, which allows inlining into the hooks.
fn compile(out: &Path) {
    let compiler = cc::Build::new().warnings(false).get_compiler();
    let mut command = compiler.to_command();
    command.args(FLAGS).arg("-o").arg(out).arg("interposer/interposer.c").arg("-ldl");
    let status = command.status().expect("a C compiler is needed to build the interposer");
    assert!(status.success(), "the interposer does not compile: {command:?}");
}

/// Hooks are called at any time, on any stack: no stack protector, whose failure path prints; no lazy binding, which
/// would resolve symbols inside a hook; thread-local storage that exists from the start. Fortified headers would
/// define the same names. Unwind tables, since a cancelled thread unwinds through a hook.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-stack-protector",
    "-fno-builtin",
    "-fno-sanitize=all",
    "-fno-lto",
    "-fasynchronous-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-g0",
    "-s",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    "-Wl,-z,noexecstack",
    "-Wl,-soname,libyamabiko_tap.so",
];
