// SPDX-License-Identifier: MIT OR Apache-2.0

//! The run-time switch: a module that is added to the crate of the mutants, and the files by which it is controlled, one for
//! each test that runs at a time.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// The module's source, without the path and the length of the file.
const MODULE: &str = include_str!("switch.in");

/// The module's name in the crate.
const NAME: &str = "mutant_switch";

/// The largest number of mutants, and one. The file has a byte for each that says whether it is active, then one for each that
/// says whether it was reached.
const LIMIT: usize = 1 << 16;
const LENGTH: usize = 2 * LIMIT;

/// Returns an expression of the crate: whether mutant `number` is active.
pub fn active(number: usize) -> String {
    format!("crate::{NAME}::active({number})")
}

/// The file descriptor by which a test has its control file.
pub const DESCRIPTOR: u32 = 500;

/// The switch of the mutants that are numbered from 1.
pub struct Switch {
    controls: Vec<Control>,
    module: PathBuf,
}

impl Switch {
    /// Makes the module and control files for `jobs` tests at a time in `directory`.
    pub fn make(directory: &Path, mutants: usize, jobs: usize) -> Result<Self> {
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "mutants run on Linux and x86-64 only"
        );
        ensure!(mutants < LIMIT, "{LIMIT} mutants or more: name fewer files");
        fs::create_dir_all(directory)?;
        let none = directory.join("control");
        fs::write(&none, vec![0; LENGTH])?;
        let mut controls = Vec::new();
        for job in 0..jobs {
            let file = directory.join(format!("control-{job}"));
            fs::write(&file, vec![0; LENGTH])?;
            controls.push(Control { file });
        }
        let module = MODULE
            .replace("@CONTROL@", &none.display().to_string())
            .replace("@DESCRIPTOR@", &DESCRIPTOR.to_string())
            .replace("@LIMIT@", &LIMIT.to_string());
        let this = Self { controls, module: directory.join("switch.rs") };
        fs::write(&this.module, module)?;
        Ok(this)
    }

    /// Returns the control files.
    pub fn controls(&self) -> &[Control] {
        &self.controls
    }

    /// Returns the text that adds the module to a crate's root.
    pub fn declaration(&self) -> String {
        format!(
            "\n#[allow(warnings, unsafe_code, clippy::all)]\n#[path = \"{}\"]\npub(crate) mod {NAME};\n",
            self.module.display()
        )
    }
}

/// The control file of one test at a time.
pub struct Control {
    file: PathBuf,
}

impl Control {
    /// Returns a command that runs the program and arguments added to it with this control file.
    pub fn command(&self) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec {DESCRIPTOR}<>\"$0\" \"$@\"")]).arg(&self.file);
        command
    }

    /// Activates mutants, and forgets which were reached.
    pub fn set(&self, active: &[usize]) -> Result<()> {
        let mut content = vec![0; LENGTH];
        for number in active {
            *content.get_mut(*number).filter(|_| *number < LIMIT).context("no such mutant")? = 1;
        }
        // Not truncated: processes may have mapped it.
        let mut file = File::options().write(true).open(&self.file).context("no control file")?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file.write_all(&content)?)
    }

    /// Returns the numbers of the mutants that were reached since [`Control::set`].
    pub fn reached(&self) -> Result<BTreeSet<usize>> {
        let content = fs::read(&self.file)?;
        let bytes = content.iter().skip(LIMIT).enumerate();
        Ok(bytes.filter(|(_, byte)| **byte != 0).map(|(number, _)| number).collect())
    }
}
