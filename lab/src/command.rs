// SPDX-License-Identifier: MIT OR Apache-2.0

//! The commands of `cargo xtask` that need the simulator or the engine.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lab::{
    bench, conformance, consumer, decode, demo, exit::exit_code, interop::command as interop, miniport,
    replay, spin,
};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about, version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// xtask/src/main.rs lists the same commands, for `cargo xtask --help`.
#[derive(Subcommand)]
enum Command {
    /// Copy a file between two simulated Windows hosts by RDMA, and read it back
    Demo(demo::Options),
    /// Run NDK consumer drivers on simulated Windows hosts with viordma
    Consumer(consumer::Options),
    /// Run an NDIS miniport driver for virtio-net on a simulated Windows host
    Miniport(miniport::Options),
    /// Decode a capture frame by frame, and report what is wrong with it
    Decode(decode::Options),
    /// Replay captures of Linux peers, with the engine in place of either side
    Replay(replay::Options),
    /// Measure the engine and the image, and compare with the limit of this machine
    Bench(bench::Options),
    /// Run scenarios of consumers over seeds, with allocations of the driver failing
    Conformance(conformance::Options),
    /// Change the state of adapters and devices at random beside traffic, and shorten what fails
    Spin(spin::Options),
    /// Test the image against a Linux guest with rdma_rxe, as client and as server
    Interop(interop::Options),
}

/// Counts allocations while something is measured.
#[global_allocator]
static ALLOCATOR: bench::allocations::Counting = bench::allocations::Counting;

pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Consumer(options) => consumer::run(&options),
        Command::Miniport(options) => miniport::run(&options),
        Command::Decode(options) => decode::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Spin(options) => spin::run(&options),
        Command::Interop(options) => interop::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use clap::CommandFactory as _;

    use super::*;

    /// The options of a command in a line of text, up to the end of its code.
    fn options<'a>(line: &'a str, begin: &str) -> Vec<&'a str> {
        let Some((_, rest)) = line.split_once(begin) else { return Vec::new() };
        let code = rest.split(['`', '#', '"', ';', '|']).next().unwrap_or_default();
        let words = code.split_whitespace().filter_map(|word| word.strip_prefix("--"));
        words.map(|word| word.split('=').next().unwrap_or(word)).collect()
    }

    #[test]
    fn options_of_commands_in_documents_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folders = [root.clone(), root.join("docs"), root.join("docs/objects"), root.join("lab")];
        let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut seen = 0;
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
            let text = fs::read_to_string(&path).unwrap();
            for command in Cli::command().get_subcommands() {
                let begin = format!("cargo xtask {} ", command.get_name());
                for option in text.lines().flat_map(|line| options(line, &begin)) {
                    let has = |argument: &clap::Arg| argument.get_long() == Some(option);
                    let exists = option == "help" || command.get_arguments().any(has);
                    assert!(exists, "{}: {begin}has no option --{option}", path.display());
                    seen += 1;
                }
            }
        }
        assert!(seen > 20, "{seen} options");
    }
}
