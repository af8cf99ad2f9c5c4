// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lightweight filter of the user's, an image of a file, between the protocol drivers and a miniport.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, ensure};
use ndis_sim::NdisHost as _;
use ndk_abi::nt::NT_SUCCESS;
use nt_sim::{
    Host,
    driver::{Driver, DriverOptions, DriverState},
};

use crate::{exit::Exit, missing_imports};

/// The options of a command for filters.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FilterOptions {
    /// Put a lightweight filter, an image of this file, above the adapters of each host; the first one is the lowest. Its ServiceName must
    /// be the name of the file
    #[arg(long, value_name = "FILTER.sys")]
    pub filter: Vec<PathBuf>,
}

/// The filter drivers of a host, the lowest one first.
pub struct Filters(Vec<Arc<Driver>>);

impl FilterOptions {
    /// Loads the filters on a host, whose adapters start later, and binds them to these.
    ///
    /// # Errors
    /// With exit code 2, if an image cannot be loaded or used.
    pub fn load(&self, host: &Arc<Host>) -> Result<Filters> {
        let load = |path: &PathBuf| {
            let service = service(path);
            let driver = host
                .load_driver(path, DriverOptions::new(&service))
                .map_err(|error| Exit::usage(format!("{}: {error}", path.display())))?;
            missing_imports::check(driver.image(), false)?;
            host.bind_filter(&service);
            Ok(driver)
        };
        self.filter.iter().map(load).collect::<Result<_>>().map(Filters)
    }
}

fn service(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

impl Filters {
    /// Starts the filter drivers.
    ///
    /// # Errors
    /// A driver does not start.
    pub fn start(&self, host: &Arc<Host>) -> Result<()> {
        for driver in &self.0 {
            let this = driver.clone();
            let status = host.spawn("DriverEntry", move || this.start()).join()?;
            ensure!(NT_SUCCESS(status), "DriverEntry of {} returned {status:#010x}", driver.service());
        }
        Ok(())
    }

    /// Checks that each filter has a module on each adapter of a host.
    ///
    /// # Errors
    /// A filter has none: its `ServiceName` is another one, or it has refused the adapter.
    pub fn check_attached(&self, host: &Arc<Host>) -> Result<()> {
        for driver in &self.0 {
            ensure!(
                host.adapters()
                    .iter()
                    .all(|adapter| adapter.filter_services().iter().any(|name| name == driver.service())),
                "{} has no module on an adapter of {}: its ServiceName is not the name of its file, or FilterAttach has failed",
                driver.service(),
                host.name()
            );
        }
        Ok(())
    }

    /// Unloads the filter drivers, the highest one first.
    ///
    /// # Errors
    /// The host dies of it.
    pub fn unload(&self, host: &Arc<Host>) -> Result<()> {
        for driver in self.0.iter().rev() {
            if !host.is_dead() && driver.state() == DriverState::Started {
                let this = driver.clone();
                host.spawn("DriverUnload", move || this.unload()).join()?;
            }
        }
        Ok(())
    }
}
