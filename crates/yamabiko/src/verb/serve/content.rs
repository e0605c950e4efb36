//! `serve --make-content`: the files of a model of content, written before they are served.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use load::content::{Content, Object};
use sys::signal::Interrupts;
use units::Bytes;

use crate::terminal::say;

/// Most bytes that are written.
const BYTES_MAX: u64 = 100_000_000_000;

/// Writes the objects of `content` that are not in `dir` yet. A file that is there must be the object's, byte for byte:
/// nothing is overwritten. False if it was interrupted; what is whole by then stays.
///
/// # Errors
/// Another file in an object's place, too little room, and what the disk says.
pub fn make(content: &Content, dir: &Path, interrupts: &Interrupts) -> Result<bool> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let objects = content.objects();
    let missing = objects.iter().filter(|object| !place(dir, object).exists());
    let (files, bytes) = missing.fold((0u64, 0u64), |(files, bytes), object| (files + 1, bytes + object.bytes));
    let whole: u64 = objects.iter().map(|object| object.bytes).sum();
    say(format_args!(
        "{content}: {} files, {}; {files} of them to write, {}",
        objects.len(),
        units_of(whole),
        units_of(bytes)
    ));
    if bytes > BYTES_MAX {
        bail!(
            "--make-content {content}: {} to write are more than the {} that are possible; ask for fewer objects",
            units_of(bytes),
            units_of(BYTES_MAX)
        );
    }
    let free = room(dir)?;
    if bytes > free {
        bail!(
            "--make-content {content}: {} to write, and {} has room for {}; ask for fewer objects, or another folder",
            units_of(bytes),
            dir.display(),
            units_of(free)
        );
    }
    let asked_before = interrupts.count();
    for (index, object) in objects.iter().enumerate() {
        if interrupts.count() > asked_before {
            return Ok(false);
        }
        let at = place(dir, object);
        write(content, index as u32, object, &at).with_context(|| format!("cannot write {}", at.display()))?;
    }
    Ok(true)
}

fn write(content: &Content, index: u32, object: &Object, at: &Path) -> Result<()> {
    match File::open(at) {
        Ok(there) => {
            if is_object(content, index, object, there)? {
                return Ok(());
            }
            bail!("another file is in its place, and is not overwritten: name an empty folder, or remove the file");
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) => {}
    }
    if let Some(folder) = at.parent() {
        fs::create_dir_all(folder)?;
    }
    // Under its name stands a whole file or none, also after a crash.
    let unfinished = at.with_extension("yamabiko-part");
    let written =
        File::create(&unfinished).and_then(|mut file| content.bytes(index, object, |piece| file.write_all(piece)));
    if let Err(error) = written.and_then(|()| fs::rename(&unfinished, at)) {
        // It says nothing more than the error does.
        let _ = fs::remove_file(&unfinished);
        return Err(error.into());
    }
    Ok(())
}

fn is_object(content: &Content, index: u32, object: &Object, there: File) -> io::Result<bool> {
    let metadata = there.metadata()?;
    if !metadata.is_file() || metadata.len() != object.bytes {
        return Ok(false);
    }
    let mut there = BufReader::with_capacity(1 << 16, there);
    let mut read = vec![0; 1 << 16];
    let mut same = true;
    content.bytes(index, object, |piece| {
        let read = &mut read[..piece.len()];
        there.read_exact(read)?;
        same &= read == piece;
        io::Result::Ok(())
    })?;
    Ok(same)
}

fn place(dir: &Path, object: &Object) -> std::path::PathBuf {
    dir.join(object.path.trim_start_matches('/'))
}

/// Bytes that the disk under `dir` has left for this user.
fn room(dir: &Path) -> Result<u64> {
    let found = nix::sys::statvfs::statvfs(dir).with_context(|| format!("statvfs {}", dir.display()))?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

fn units_of(bytes: u64) -> String {
    match bytes {
        0..10_000 => Bytes(bytes).to_string(),
        10_000..10_000_000 => format!("{}KB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}GB", bytes / 1_000_000_000),
    }
}
