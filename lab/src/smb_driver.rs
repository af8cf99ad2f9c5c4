// SPDX-License-Identifier: MIT OR Apache-2.0

//! Client and server of SMB Direct in a driver, beside viordma on each host of a testbed.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context as _, Result, anyhow, ensure};
use ndis_sim::NdisHost as _;
use ndk_abi::nt::NT_SUCCESS;
use ndk_consumer::transfer::{Failure, Report};
use nt_sim::{Driver, DriverOptions, Host, JoinHandle, nt::io::IoResult};
use smb_consumer::{
    Options,
    control::{self, Answer, Order},
};

use crate::{machine::Machine, testbed::Testbed};

/// The driver on each host.
pub struct SmbDriver {
    loaded: Vec<(Arc<Host>, Arc<Driver>)>,
}

/// A side of a copy, running on a thread of its host.
pub struct Running(JoinHandle<Result<Vec<u8>>>);

impl SmbDriver {
    /// Loads and starts the driver `image` on the hosts of `bed`, which has started.
    ///
    /// # Errors
    /// The image cannot be loaded, or its `DriverEntry` fails.
    pub fn start(bed: &Testbed, image: &Path) -> Result<Self> {
        let mut loaded = Vec::new();
        for machine in bed.machines() {
            let host = machine.host();
            let driver = host.load_driver(image, DriverOptions::new("smb-driver"));
            let driver = driver.with_context(|| format!("cannot load {}", image.display()))?;
            let missing = driver.image().missing_imports();
            ensure!(missing.is_empty(), "the simulated kernel does not have {}", missing.join(", "));
            let entered = driver.clone();
            let status = host.spawn("DriverEntry", move || entered.start()).join()?;
            ensure!(NT_SUCCESS(status), "DriverEntry of {} returned {status:#010x}", image.display());
            loaded.push((host.clone(), driver));
        }
        Ok(Self { loaded })
    }

    /// Unloads the driver from hosts that are alive.
    ///
    /// # Errors
    /// A host dies of it.
    pub fn stop(self) -> Result<()> {
        for (host, driver) in self.loaded {
            if !host.is_dead() {
                host.spawn("DriverUnload", move || driver.unload()).join()?;
            }
        }
        Ok(())
    }
}

/// Returns what a side on `machine` does: a server at `local`, or a client that copies to `remote`.
#[must_use]
pub fn order(
    machine: &Machine,
    options: &Options,
    [local, remote]: [SocketAddr; 2],
    [seed, bytes]: [u64; 2],
) -> Order {
    let interface = machine.host().interface(&machine.adapters()[0].function()).index();
    Order {
        interface,
        local,
        remote,
        receive_credit_max: options.config.receive_credit_max,
        send_credit_target: options.config.send_credit_target,
        chunk: u32::try_from(options.chunk).unwrap_or(u32::MAX),
        outstanding: u32::try_from(options.outstanding).unwrap_or(u32::MAX),
        seed,
        bytes,
    }
}

impl Running {
    /// Starts a server.
    #[must_use]
    pub fn serve(machine: &Machine, order: &Order) -> Self {
        Self::start(machine.host(), "server", control::SERVE, order.emit())
    }

    /// Starts a client.
    #[must_use]
    pub fn copy(machine: &Machine, order: &Order) -> Self {
        Self::start(machine.host(), "client", control::COPY, order.emit())
    }

    /// Waits until a server on the host of `machine` listens, or has failed to.
    ///
    /// # Errors
    /// The host is dead, or the driver refuses.
    pub fn await_listening(machine: &Machine) -> Result<()> {
        let waiting = Self::start(machine.host(), "listening", control::LISTENING, Vec::new());
        waiting.0.join()?.map(drop)
    }

    fn start(host: &Arc<Host>, name: &str, code: u32, input: Vec<u8>) -> Self {
        let on = host.clone();
        Self(host.spawn(name, move || {
            let file = on.open_device(control::DEVICE);
            let file = file.map_err(|status| anyhow!("cannot open {}: {status:#010x}", control::DEVICE))?;
            let IoResult { status, output, .. } = file.ioctl(code, &input, Answer::MAX_LEN);
            file.close();
            ensure!(NT_SUCCESS(status), "IOCTL {code:#010x}: {status:#010x}");
            Ok(output)
        }))
    }

    /// Waits until the side has ended.
    ///
    /// # Errors
    /// The host is dead, or the driver refuses. The inner error is that of the copy.
    pub fn join(self) -> Result<Result<Report, Box<Failure>>> {
        let output = self.0.join()??;
        Ok(Answer::parse(&output).context("the driver's answer is none")?.into())
    }
}
