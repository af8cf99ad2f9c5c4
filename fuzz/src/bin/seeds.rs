// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes the seeds of all targets, see [`roce_fuzz::seeds`].

use std::{fs, io};

use roce_fuzz::{TARGETS, generate, seeds};

fn main() -> io::Result<()> {
    for target in &TARGETS {
        let directory = generate::seed_directory(target.name);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        let seeds = seeds::make(target.name);
        for (name, bytes) in &seeds {
            fs::write(directory.join(name), bytes)?;
        }
        let bytes: usize = seeds.values().map(Vec::len).sum();
        println!("{}: {} seeds, {bytes} bytes", target.name, seeds.len());
    }
    Ok(())
}
