// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of the image's functions, from its PDB.

use std::{fs::File, io::BufReader, path::Path};

use parking_lot::Mutex;
use pdb_addr2line::{Context, ContextPdbData};

/// The symbols of one image.
pub struct Symbols {
    data: Mutex<ContextPdbData<'static, 'static, BufReader<File>>>,
}

impl Symbols {
    /// Reads a PDB; returns `None` when it does not exist or is not readable.
    #[must_use]
    pub fn read(path: &Path) -> Option<Self> {
        let pdb = pdb_addr2line::pdb::PDB::open(BufReader::new(File::open(path).ok()?)).ok()?;
        let data = Mutex::new(ContextPdbData::try_from_pdb(pdb).ok()?);
        Some(Self { data })
    }

    /// Returns function and source line at an offset from the image's base; inlined functions first.
    #[must_use]
    pub fn name(&self, offset: u32) -> Option<String> {
        self.names([offset]).pop().flatten()
    }

    /// Returns what [`Self::name`] returns, for each of several offsets. This is much faster than a call for each: the PDB is
    /// prepared once.
    pub fn names(&self, offsets: impl IntoIterator<Item = u32>) -> Vec<Option<String>> {
        let data = self.data.lock();
        let context = data.make_context().ok();
        offsets.into_iter().map(|offset| name(context.as_ref()?, offset)).collect()
    }
}

fn name(context: &Context<'_, '_>, offset: u32) -> Option<String> {
    let found = context.find_frames(offset).ok()??;
    let into = offset - found.start_rva;
    let names: Vec<String> = found
        .frames
        .iter()
        .map(|frame| {
            let function = frame.function.as_deref().unwrap_or("?");
            match (&frame.file, frame.line) {
                (Some(file), Some(line)) => {
                    format!("{function} ({}:{line})", file.rsplit(['/', '\\']).next().unwrap_or(file))
                }
                _ => function.to_owned(),
            }
        })
        .collect();
    Some(format!("{}+{into:#x}", names.join(" in ")))
}
