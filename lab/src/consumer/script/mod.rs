// SPDX-License-Identifier: MIT OR Apache-2.0

//! Scripts: what programs would do with the devices of consumer drivers, in TOML. `docs/consumer.md` is the reference.
//!
//! A script is read ([`Script::read`]) before anything runs: whatever can be checked without the hosts' addresses is
//! checked then. Variables get their values when a step runs ([`variables`]).

mod field;
mod raw;
mod step;
mod variables;

pub use field::{Field, bytes, layout};
pub use step::{Compare, Content, Ioctl, Step, Thread, duration};
pub use variables::{Role, Variables};

use std::{fs, path::Path, time::Duration};

use anyhow::Result;

use crate::exit::Exit;

/// Simulated time after which a script is given up, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(120);

/// A script that is well-formed.
#[derive(Debug)]
pub struct Script {
    /// The file's name.
    pub name: String,
    pub about: String,
    /// Drivers that it needs, by service name.
    pub drivers: Vec<String>,
    /// Names and values of the script's own variables.
    pub variables: Vec<(String, String)>,
    pub limit: Duration,
    pub threads: Vec<Thread>,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// With exit code 2 and one sentence, if the file cannot be read or is no script.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .map_err(|error| Exit::usage(format!("cannot read {}: {error}", path.display())))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self::parse(&name, &text, directory)
            .map_err(|reason| Exit::usage(format!("{}: {reason}", path.display())))
    }

    /// Sets variables that the script has to other values.
    ///
    /// # Errors
    /// One sentence, if the script is wrong with these values.
    pub fn set(&mut self, values: &[(String, String)]) -> Result<(), String> {
        for (name, value) in &mut self.variables {
            if let Some((_, other)) = values.iter().find(|(set, _)| set == name) {
                value.clone_from(other);
            }
        }
        let example = Variables::example(&self.variables);
        self.threads.iter().try_for_each(|thread| thread.check(&example))
    }

    /// Reads a script from its text. Files that it names are relative to `directory`.
    ///
    /// # Errors
    /// One sentence that says where the text is wrong.
    pub fn parse(name: &str, text: &str, directory: &Path) -> Result<Self, String> {
        let raw: raw::Script = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            // The first line of the message; the rest would show the text.
            format!("line {line}: {}", error.message().lines().next().unwrap_or("is not TOML"))
        })?;
        let limit = raw.timeout.as_deref().map_or(Ok(LIMIT), step::duration)?;
        let variables = raw.set.into_iter().map(|(name, value)| (name, value.text())).collect::<Vec<_>>();
        variables::check_names(&variables)?;
        if raw.thread.is_empty() {
            return Err("it has no [[thread]]".to_owned());
        }
        let mut threads = Vec::new();
        for thread in raw.thread {
            threads.push(step::thread(thread, directory)?);
        }
        step::check_names(&threads)?;
        let (name, about, drivers) = (name.to_owned(), raw.about, raw.drivers);
        let mut script = Self { name, about, drivers, variables, limit, threads };
        script.set(&[])?;
        Ok(script)
    }
}

#[cfg(test)]
mod tests;
