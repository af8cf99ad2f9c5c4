// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases of SMB Direct with Linux's kernel: ksmbd as the server of Samba's `smbclient`, and Samba's `smbd` as the server of Linux's
//! cifs client.
//!
//! Samba has no RDMA: it is connected by TCP on this machine with a gateway ([`smb_consumer::gateway`]) on the host with the driver.

mod client;
mod gateways;
mod samba;
mod server;
mod stream;
mod transfer;

use std::path::Path;

use anyhow::Result;
use linux_guest::Guest;

use super::{
    cases::{Case, Side},
    smb_work::SmbWork,
};
use crate::external_host::ExternalHost;

/// Runs a case, and ends the guest. `directory` is for files of this case. Returns its notes.
///
/// # Errors
/// A side failed, or data differ.
pub fn run(
    case: &Case,
    work: SmbWork,
    host: &ExternalHost,
    guest: Guest,
    directory: &Path,
) -> Result<Vec<String>> {
    let directory = tempfile::tempdir_in(directory)?;
    match case.client {
        Side::Viordma => client::run(case, work, host, guest, directory.path()),
        Side::Linux => server::run(case, work, host, guest, directory.path()),
    }
}
