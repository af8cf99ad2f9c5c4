// SPDX-License-Identifier: MIT OR Apache-2.0

//! The project's command: builds the driver's image, checks it, and runs the tests. Commands that need the simulator
//! are in the package `lab`.

mod book;
mod commits;
mod doc_openings;
mod documents;
mod drivers;
mod emulated;
mod figures;
mod fuzz;
mod guest;
mod image;
mod inf;
mod jobs;
mod lab;
mod licenses;
mod manifests;
mod miri;
mod models;
mod mutants;
mod objects;
mod package;
mod packages;
mod programs;
mod provide;
mod races;
mod rules;
mod rust_lines;
mod safety_comments;
mod shell;
mod structure;
mod test;
mod tools;
mod trace;
#[cfg(unix)]
mod verbs;
mod windows;
mod wmi;
mod words;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds, runs, tests and measures viordma
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// Commands with `lab::Arguments` are in lab/src/command.rs, with the same descriptions.
#[derive(Subcommand)]
enum Command {
    /// Build target/image/viordma.sys with its .pdb and .inf
    Image(image::Options),
    /// Make a book of the documents: target/book/html/index.html
    Book(book::Options),
    /// Copy a file between two simulated Windows hosts by RDMA, and read it back
    #[command(disable_help_flag = true)]
    Demo(lab::Arguments),
    /// Run NDK consumer drivers on simulated Windows hosts with viordma
    #[command(disable_help_flag = true)]
    Consumer(lab::Arguments),
    /// Run an NDIS miniport driver for virtio-net on a simulated Windows host
    #[command(disable_help_flag = true)]
    Miniport(lab::Arguments),
    /// Decode a capture frame by frame, and report what is wrong with it
    #[command(disable_help_flag = true)]
    Decode(lab::Arguments),
    /// Replay captures of Linux peers, with the engine in place of either side
    #[command(disable_help_flag = true)]
    Replay(lab::Arguments),
    /// Measure the engine and the image, and compare with the limit of this machine
    #[command(disable_help_flag = true)]
    Bench(lab::Arguments),
    /// Run scenarios of consumers over seeds, with allocations of the driver failing
    #[command(disable_help_flag = true)]
    Conformance(lab::Arguments),
    /// Change the state of adapters and devices at random beside traffic, and shorten what fails
    #[command(disable_help_flag = true)]
    Spin(lab::Arguments),
    /// Test the image against a Linux guest with rdma_rxe, as client and as server
    #[command(disable_help_flag = true)]
    Interop(lab::Arguments),
    /// Fuzz the engine with frames, datagrams and sequences of operations
    Fuzz(fuzz::Options),
    /// Write viordma.inx and parts of documents from the tables in inf/
    Inf(inf::Options),
    /// Compare the manifests and lock files of the two workspaces
    Manifests(manifests::Options),
    /// Run tests of portable crates in Miri, which reports undefined behavior
    Miri(miri::Options),
    /// Make what an administrator installs: dist/viordma-VERSION-x64.zip
    Package(package::Options),
    /// Run all checks: formatting, lints, the image, all tests, the demo and its captures
    Test(test::Options),
    /// Run the models of concurrent code: every schedule of a few threads
    Models(models::Options),
    /// Change the code in one place at a time, and list the changes that no test notices
    Mutants(mutants::Options),
    /// Compare the pages of docs/objects with the code and with what the provider's tests recorded
    Objects,
    /// Run the engine's tests with threads under ThreadSanitizer, which reports data races
    Races,
    /// List where code and tests cite the rules of docs/rules/ndkpi.md
    Rules(rules::Options),
    /// List files that import each other in a circle, and dependencies between crates that point upward
    Structure(structure::Options),
    /// Build libibverbs.so.1 and librdmacm.so.1, which run programs for RDMA without a device
    #[cfg(unix)]
    Verbs(verbs::Options),
    /// Check all packages for Windows, or run the tests that run there
    Windows(windows::Options),
    /// List uses of words that this project's text and names avoid
    Words(words::Options),
    /// Build or install what a command needs
    #[command(hide = true)]
    Provide(provide::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match lab::this_program().and_then(|_| run(cli.command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(shell::exit_code(&error))
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(arguments) => return lab::run("demo", &arguments),
        Command::Consumer(arguments) => return lab::run("consumer", &arguments),
        Command::Miniport(arguments) => return lab::run("miniport", &arguments),
        Command::Decode(arguments) => return lab::run("decode", &arguments),
        Command::Replay(arguments) => return lab::run("replay", &arguments),
        Command::Bench(arguments) => return lab::run("bench", &arguments),
        Command::Conformance(arguments) => return lab::run("conformance", &arguments),
        Command::Spin(arguments) => return lab::run("spin", &arguments),
        Command::Interop(arguments) => return lab::run("interop", &arguments),
        Command::Book(options) => book::run(&options)?,
        Command::Image(options) => image::run(&options)?,
        Command::Fuzz(options) => fuzz::run(&options)?,
        Command::Inf(options) => inf::run(&options)?,
        Command::Manifests(options) => manifests::run(&options)?,
        Command::Miri(options) => miri::run(&options)?,
        Command::Test(options) => test::run(&options)?,
        Command::Models(options) => models::run(&options)?,
        Command::Mutants(options) => mutants::run(&options)?,
        Command::Objects => objects::run()?,
        Command::Package(options) => package::run(&options)?,
        Command::Races => races::run()?,
        Command::Rules(options) => rules::run(&options)?,
        Command::Structure(options) => structure::run(&options)?,
        #[cfg(unix)]
        Command::Verbs(options) => verbs::run(&options)?,
        Command::Windows(options) => windows::run(&options)?,
        Command::Words(options) => words::run(&options)?,
        Command::Provide(options) => provide::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Options of the commands of `lab` are tested there.
    #[test]
    fn commands_in_documents_exist_with_their_options() {
        let cli = Cli::command();
        for (page, text) in documents::tracked("*.md").unwrap() {
            for words in book::commands::commands(&text) {
                let Some(&name) = words.first() else { continue };
                let is_name = name.chars().all(|letter| letter.is_ascii_lowercase());
                let Some(command) = cli.find_subcommand(name) else {
                    assert!(!is_name, "{page}: there is no cargo xtask {name}");
                    continue;
                };
                let options = words.iter().filter_map(|word| book::commands::option(word));
                for option in options.filter(|_| !command.is_disable_help_flag_set()) {
                    let has = |argument: &clap::Arg| argument.get_long() == Some(option);
                    let exists = option == "help" || command.get_arguments().any(has);
                    assert!(exists, "{page}: cargo xtask {name} has no option --{option}");
                }
            }
        }
    }

    /// A command of `lab` has the help of `lab`.
    #[test]
    fn read_me_files_list_every_command() {
        let (own, lab) = (include_str!("../README.md"), include_str!("../../lab/README.md"));
        let cli = Cli::command();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = format!("`{}`", command.get_name());
            let is_row = |line: &str| line.starts_with('|') && line.contains(&name);
            assert!(own.lines().any(is_row), "xtask/README.md has no row of {name}");
            if command.is_disable_help_flag_set() {
                assert!(lab.lines().any(is_row), "lab/README.md has no row of {name}");
            }
        }
    }
}
