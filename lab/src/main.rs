// SPDX-License-Identifier: MIT OR Apache-2.0

//! The commands of `cargo xtask` that need the simulator or the engine. `cargo xtask` runs this program.

#[cfg(target_os = "linux")]
mod command;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: this command needs the simulator, which runs on x86-64 Linux only");
    std::process::ExitCode::from(2)
}
