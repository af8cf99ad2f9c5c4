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
