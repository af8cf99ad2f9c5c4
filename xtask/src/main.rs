//! The project's one tool: builds the driver's image, runs it in the simulated kernel, tests and measures it.

#![deny(unsafe_code)]

mod bench;
mod capture;
mod decode;
mod demo;
mod fuzz;
mod image;
mod interop;
mod licences;
mod packages;
mod replay;
mod rules;
mod shell;
mod structure;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand, error::ErrorKind};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build target/image/viordma.sys and its .pdb
    Image(image::Options),
    /// Copy a file between two simulated hosts by RDMA, and back
    Demo(demo::Options),
    /// Print a capture as the engine reads it, and what is wrong with it
    Decode(decode::Options),
    /// Play the captures of Linux peers again, with the engine in the place of either side
    Replay(replay::Options),
    /// Measure the engine and the image, beside what this machine can do at best
    Bench(bench::Options),
    /// Let the image and a Linux guest with rdma_rxe do everything with each other
    Interop(interop::Options),
    /// Give the engine what nobody has thought of
    Fuzz(fuzz::Options),
    /// Pass everything: formatting, lints, the image, all tests, the demo and its captures
    Test(test::Options),
    /// List where the rules of docs/rules/ndkpi.md are named in code and tests
    Rules(rules::Options),
    /// List files that import each other in a circle, and dependencies between crates that point upward
    Structure(structure::Options),
}

/// Counts what is allocated while something is measured.
#[global_allocator]
static ALLOCATOR: bench::allocations::Counting = bench::allocations::Counting;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Image(options) => image::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Decode(options) => decode::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Interop(options) => interop::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Rules(options) => rules::run(&options),
        Command::Structure(options) => structure::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(shell::exit_code(&error))
        }
    }
}

/// Says in one line what is wrong with the command line. Help and version, when asked for, are no errors.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {
            let text = error.to_string();
            // Missing arguments are listed one a line below the first one.
            let line: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            eprintln!("{}", line.join(" "));
            ExitCode::from(2)
        }
    }
}
