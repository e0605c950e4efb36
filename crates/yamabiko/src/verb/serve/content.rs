//! `serve --make-content`: writes the files of a content model before they are served.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use load::content::{Content, Object};
use sys::signal::Interrupts;
use units::Bytes;

use crate::terminal::print_message;

/// Most bytes that are written, in total.
const BYTES_MAX: u64 = 100_000_000_000;

/// Writes the objects of `content` that are not in `dir` yet. An existing file must have the object's content: no file
/// is overwritten. False if it was interrupted; complete files stay.
///
/// # Errors
/// An object's path has another file. The objects are too large for the disk or the limit. A file cannot be written.
pub fn make(content: &Content, dir: &Path, interrupts: &Interrupts) -> Result<bool> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let objects = content.objects();
    let missing = objects.iter().filter(|object| !path_of(dir, object).exists());
    let (files, bytes) = missing.fold((0u64, 0u64), |(files, bytes), object| (files + 1, bytes + object.bytes));
    let whole: u64 = objects.iter().map(|object| object.bytes).sum();
    print_message(format_args!(
        "{content}: {} files, {}; {files} of them to write, {}",
        objects.len(),
        units_of(whole),
        units_of(bytes)
    ));
    if bytes > BYTES_MAX {
        bail!(
            "--make-content {content}: {} to write exceed the limit of {}; use fewer objects",
            units_of(bytes),
            units_of(BYTES_MAX)
        );
    }
    let free = free_bytes(dir)?;
    if bytes > free {
        bail!(
            "--make-content {content}: {} to write, but {} has {} free; use fewer objects, or another folder",
            units_of(bytes),
            dir.display(),
            units_of(free)
        );
    }
    let interrupts_before = interrupts.count();
    for (index, object) in objects.iter().enumerate() {
        if interrupts.count() > interrupts_before {
            return Ok(false);
        }
        let at = path_of(dir, object);
        write(content, index as u32, object, &at).with_context(|| format!("cannot write {}", at.display()))?;
    }
    Ok(true)
}

fn write(content: &Content, index: u32, object: &Object, at: &Path) -> Result<()> {
    match File::open(at) {
        Ok(existing) => {
            if is_object(content, index, object, existing)? {
                return Ok(());
            }
            bail!("another file has this name and is not overwritten: give an empty folder, or remove the file");
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Err(_) => {}
    }
    if let Some(folder) = at.parent() {
        fs::create_dir_all(folder)?;
    }
    // The file is renamed when it is complete, so that a crash leaves no partial file under the object's name.
    let unfinished = at.with_extension("yamabiko-part");
    let written =
        File::create(&unfinished).and_then(|mut file| content.bytes(index, object, |piece| file.write_all(piece)));
    if let Err(error) = written.and_then(|()| fs::rename(&unfinished, at)) {
        // Only the first error is reported.
        let _ = fs::remove_file(&unfinished);
        return Err(error.into());
    }
    Ok(())
}

fn is_object(content: &Content, index: u32, object: &Object, existing: File) -> io::Result<bool> {
    let metadata = existing.metadata()?;
    if !metadata.is_file() || metadata.len() != object.bytes {
        return Ok(false);
    }
    let mut existing = BufReader::with_capacity(1 << 16, existing);
    let mut read = vec![0; 1 << 16];
    let mut same = true;
    content.bytes(index, object, |piece| {
        let read = &mut read[..piece.len()];
        existing.read_exact(read)?;
        same &= read == piece;
        io::Result::Ok(())
    })?;
    Ok(same)
}

fn path_of(dir: &Path, object: &Object) -> std::path::PathBuf {
    dir.join(object.path.trim_start_matches('/'))
}

/// Free bytes for this user on the file system of `dir`.
fn free_bytes(dir: &Path) -> Result<u64> {
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
