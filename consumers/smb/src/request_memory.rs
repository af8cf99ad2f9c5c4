// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a peer reads or writes for one request.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ndk_consumer::{Access, Error, FastMemory, Os, Pd};
use smb_direct::{BufferDescriptor, Token};

use crate::Session;

const PAGE: usize = 4096;

/// Memory that is registered for one request at a time: one region and one descriptor per `FRMRPageCount` pages.
pub struct RequestMemory<O: Os> {
    regions: Vec<FastMemory<O>>,
    /// Length of all regions but the last one, in bytes.
    region: usize,
}

impl<O: Os> RequestMemory<O> {
    /// Allocates `length` bytes, at least 1, and initializes regions for their registration.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn new(pd: &Arc<Pd<O>>, length: usize) -> Result<Self, Error> {
        let info = pd.adapter().info().map_err(|status| Error::Call("NdkQueryAdapterInfo", status))?;
        let region = info.FRMRPageCount as usize * PAGE;
        let lengths = (0..length).step_by(region.max(PAGE)).map(|at| region.min(length - at));
        let regions = lengths.map(|length| {
            FastMemory::new(pd, length).map_err(|status| Error::Call("NdkInitializeFastRegisterMr", status))
        });
        Ok(Self { regions: regions.collect::<Result<_, _>>()?, region })
    }

    /// Copies `from` to the first bytes.
    pub fn store(&self, from: &[u8]) {
        for (region, piece) in self.regions.iter().zip(from.chunks(self.region)) {
            region.store(piece);
        }
    }

    /// Copies the first bytes into `into`.
    pub fn load(&self, into: &mut [u8]) {
        for (region, piece) in self.regions.iter().zip(into.chunks_mut(self.region)) {
            region.load(piece);
        }
    }

    /// Registers the first `length` bytes for the peer. Each request completes with `tag`. Returns the channel information.
    ///
    /// # Errors
    /// As [`Session::register`].
    pub fn register(
        &self,
        session: &mut Session<O>,
        length: usize,
        access: Access,
        tag: u64,
    ) -> Result<Vec<u8>, Error> {
        let mut channel_info = Vec::new();
        for (at, region) in self.used(length) {
            session.register(region, access, tag)?;
            let remote = region.remote();
            let length = region.len().min(length - at) as u32;
            let descriptor = BufferDescriptor { offset: remote.address, token: remote.token, length };
            let mut bytes = [0; BufferDescriptor::LEN];
            descriptor.emit(&mut bytes);
            channel_info.extend(bytes);
        }
        Ok(channel_info)
    }

    /// Invalidates the registrations of the first `length` bytes but that of `invalidated`, which the peer has invalidated.
    /// Returns the number of requests posted, each of which completes with `tag`.
    ///
    /// # Errors
    /// As [`Session::register`].
    pub fn invalidate(
        &self,
        session: &mut Session<O>,
        length: usize,
        invalidated: Option<Token>,
        tag: u64,
    ) -> Result<usize, Error> {
        let mut posted = 0;
        for (_, region) in self.used(length) {
            if Some(region.remote().token) != invalidated {
                session.invalidate(region, tag)?;
                posted += 1;
            }
        }
        Ok(posted)
    }

    /// Returns the regions of the first `length` bytes, and where each begins.
    fn used(&self, length: usize) -> impl Iterator<Item = (usize, &FastMemory<O>)> {
        (0..length).step_by(self.region.max(PAGE)).zip(&self.regions)
    }
}
