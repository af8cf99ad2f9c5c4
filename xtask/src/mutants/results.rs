// SPDX-License-Identifier: MIT OR Apache-2.0

//! The last outcome of each mutant: a file of lines `OUTCOME<tab>NAME`, to which each run adds.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
};

use anyhow::{Context as _, Result};

use super::{copy, mutant::Mutant, outcome::Outcome};

/// The results of all runs.
pub struct Results {
    file: File,
    outcomes: BTreeMap<String, Outcome>,
}

impl Results {
    /// Reads the results of the runs before.
    pub fn read() -> Result<Self> {
        fs::create_dir_all(copy::directory())?;
        let path = copy::directory().join("results.txt");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let entry = |line: &str| {
            let (outcome, name) = line.split_once('\t')?;
            Some((name.to_owned(), Outcome::ALL.into_iter().find(|other| other.name() == outcome)?))
        };
        let outcomes = text.lines().filter_map(entry).collect();
        let file = File::options().create(true).append(true).open(&path);
        Ok(Self { file: file.with_context(|| format!("cannot write {}", path.display()))?, outcomes })
    }

    /// Returns what became of a mutant last.
    pub fn outcome(&self, mutant: &Mutant) -> Option<Outcome> {
        self.outcomes.get(&mutant.name).copied()
    }

    pub fn add(&mut self, mutant: &Mutant, outcome: Outcome) -> Result<()> {
        writeln!(self.file, "{}\t{}", outcome.name(), mutant.name).context("cannot write the results")
    }
}
