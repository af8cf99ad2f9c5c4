// SPDX-License-Identifier: MIT OR Apache-2.0

//! Address handles: paths of datagrams.

use std::sync::Arc;

use roce_wire::Path;

use super::attributes::AddressVector;
use crate::addresses::of_gid;
use crate::device::Device;
use crate::error::Error;
use crate::memory::ProtectionDomain;

/// The path to a peer, for datagrams.
#[derive(Debug)]
pub struct AddressHandle {
    pd: Arc<ProtectionDomain>,
    pub(super) path: Path,
}

impl AddressHandle {
    /// Creates a handle.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the vector has no GID of the device's address family, or another port or GID index than the device has.
    pub fn new(pd: &Arc<ProtectionDomain>, vector: &AddressVector) -> Result<Self, Error> {
        let path = path_of(pd.device(), vector)?;
        pd.users().add();
        Ok(Self { pd: Arc::clone(pd), path })
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Ends the use of the handle. Posted datagrams do not need it.
    pub fn destroy(&self) {
        self.pd.users().remove();
    }
}

/// Returns the path of an address vector.
pub(super) fn path_of(device: &Device, vector: &AddressVector) -> Result<Path, Error> {
    let remote = of_gid(vector.gid);
    let same_family = remote.is_ipv4() == device.address().is_ipv4();
    if !vector.is_global || vector.gid_index != 0 || vector.port != 1 || !same_family {
        return Err(Error::Invalid);
    }
    let mut path = device.path_to(remote, vector.traffic_class);
    if vector.hop_limit != 0 {
        path.hop_limit = vector.hop_limit;
    }
    Ok(path)
}
