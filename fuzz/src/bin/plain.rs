// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a target without libFuzzer: `plain TARGET SECONDS [SEED]` with generated inputs, `plain TARGET FILE...` with the inputs
//! in files.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use roce_fuzz::Target;
use roce_fuzz::generate::{self, Generator};

/// The current input, printed on a panic.
static CURRENT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, seconds, rest @ ..] = arguments.as_slice() else { return usage() };
    let Some(target) = Target::by_name(target) else { return usage() };
    let Ok(seconds) = seconds.parse::<f64>() else { return files(&target, &arguments[1..]) };
    let Ok(seed) = rest.first().map_or(Ok(1), |seed| seed.parse()) else { return usage() };
    let seeds = match generate::seeds(target.name) {
        Ok(seeds) => seeds.into_iter().map(|(_, bytes)| bytes).collect(),
        Err(error) => {
            eprintln!("error: cannot read the seeds of {}: {error}", target.name);
            return ExitCode::FAILURE;
        }
    };
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if let Ok(input) = CURRENT.lock() {
            eprintln!("input in hexadecimal: {}", generate::hex(&input));
        }
    }));
    let mut generator = Generator::new(seed, seeds, target.max_len);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut runs = 0_u64;
    while Instant::now() < end {
        let input = generator.input();
        if let Ok(mut current) = CURRENT.lock() {
            current.clone_from(&input);
        }
        (target.run)(&input);
        runs += 1;
    }
    println!("{}: {runs} generated inputs in {seconds} s, no finding", target.name);
    ExitCode::SUCCESS
}

fn files(target: &Target, files: &[String]) -> ExitCode {
    for file in files {
        match std::fs::read(file) {
            Ok(input) => (target.run)(&input),
            Err(error) => {
                eprintln!("error: {file}: {error}");
                return ExitCode::from(2);
            }
        }
        println!("{}: {file}: no finding", target.name);
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: plain frames|datagrams|sequences|stash|transports|smb-direct SECONDS [SEED] | FILE...");
    ExitCode::from(2)
}
