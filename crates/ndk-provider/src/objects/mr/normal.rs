// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions registered by `NdkRegisterMr`.
//!
//! Registration maps the pages of the consumer's MDL chain with an MDL of the provider, so that the consumer may
//! free the chain when the call completes. The virtual address is only an index.
//= R-MR-6, R-MR-7, R-MR-8

use crate::base::limits::LIMITS;
use crate::base::state::memory;
use crate::base::status::{self, NtResult};
use crate::objects::pd::Pd;
use fallible::Arc;
use ndk_abi::ndk::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK,
};
use ndk_abi::nt::{STATUS_DEVICE_BUSY, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER};
use nt::{Mapping, MdlChain, SpinLock};
use roce::{Access, Region};
use state_table::state_table;

state_table! {
    /// Life cycle of a normal region.
    pub enum State {
        Unregistered,
        /// A registration is in progress.
        Registering,
        Registered,
        /// A deregistration is in progress.
        Deregistering,
    }
    /// Events of the life cycle.
    pub enum Event {
        Register: Unregistered => Registering;
        Done: Registering => Registered, Deregistering => Unregistered;
        Failed: Registering => Unregistered;
        Deregister: Registered => Deregistering;
    }
}

/// A normal region.
pub struct Normal {
    inner: SpinLock<Inner>,
}

struct Inner {
    state: State,
    registered: Option<Registered>,
}

/// Registered memory.
struct Registered {
    region: Arc<Region>,
    /// Keeps the region's memory mapped; dropped after it.
    mapping: Mapping,
}

impl Normal {
    pub fn new() -> Self {
        Self { inner: SpinLock::new(Inner { state: State::Unregistered, registered: None }) }
    }

    /// Begins a registration, which [`Normal::register`] completes.
    //= R-MR-3, R-MR-4, R-MR-19
    pub fn begin_register(&self, length: usize) -> NtResult {
        if length == 0 || length > LIMITS.registration {
            return Err(STATUS_INVALID_PARAMETER);
        }
        self.step(Event::Register)
    }

    /// Maps and registers the first `length` bytes of the chain.
    //= R-MR-1, R-MR-2, R-MR-5, R-MR-6, R-MR-22
    pub fn register(&self, pd: &Pd, chain: MdlChain<'_>, length: usize, flags: u32) -> NtResult {
        let outcome = map(pd, chain, length, flags);
        let mut inner = self.inner.lock();
        let event = if outcome.is_ok() { Event::Done } else { Event::Failed };
        inner.state = inner.state.on(event).unwrap_or(inner.state);
        inner.registered = Some(outcome?);
        Ok(())
    }

    /// Begins a deregistration, which [`Normal::deregister`] completes.
    //= R-MR-18, R-MR-20
    pub fn begin_deregister(&self) -> NtResult {
        let mut inner = self.inner.lock();
        let next = inner.state.on(Event::Deregister).map_err(|_| STATUS_INVALID_DEVICE_STATE)?;
        if inner.registered.as_ref().is_some_and(|registered| registered.region.windows() != 0) {
            return Err(STATUS_DEVICE_BUSY);
        }
        inner.state = next;
        Ok(())
    }

    /// Completes a deregistration.
    //= R-MR-17
    pub fn deregister(&self, pd: &Pd) {
        let registered = self.inner.lock().registered.take();
        release(pd, registered);
        let mut inner = self.inner.lock();
        inner.state = inner.state.on(Event::Done).unwrap_or(inner.state);
    }

    pub fn token(&self) -> u32 {
        self.inner.lock().registered.as_ref().map_or(0, |registered| registered.region.key())
    }

    pub fn finish(&self, pd: &Pd) {
        let registered = self.inner.lock().registered.take();
        release(pd, registered);
    }

    fn step(&self, event: Event) -> NtResult {
        let mut inner = self.inner.lock();
        inner.state = inner.state.on(event).map_err(|_| STATUS_INVALID_DEVICE_STATE)?;
        Ok(())
    }
}

//= R-MR-23, R-IRQL-8
fn map(pd: &Pd, chain: MdlChain<'_>, length: usize, flags: u32) -> NtResult<Registered> {
    let access = access(flags).ok_or(STATUS_INVALID_PARAMETER)?;
    let mapping = Mapping::new(chain, length).map_err(status::mdl)?;
    let engine = &pd.provider().engine;
    let region = memory::register(engine, pd.domain(), &mapping, access).map_err(status::create)?;
    Ok(Registered { region, mapping })
}

/// Deregisters, then unmaps: after the engine's deregistration the token is invalid and no packet accesses the
/// memory.
fn release(pd: &Pd, registered: Option<Registered>) {
    if let Some(Registered { region, mapping }) = registered {
        pd.provider().engine.memory().deregister(&region);
        drop(mapping);
    }
}

/// Returns the access rights for `NDK_MR_FLAG_*`, or `None` if a bit is unknown.
//= R-MR-9, R-MR-10, R-MR-11
fn access(flags: u32) -> Option<Access> {
    // REMOTE_WRITE includes LOCAL_WRITE.
    const KNOWN: u32 =
        NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_RDMA_READ_SINK;
    let rights = [
        (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, Access::LOCAL_WRITE),
        (NDK_MR_FLAG_ALLOW_REMOTE_READ, Access::REMOTE_READ),
        (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, Access::REMOTE_WRITE | Access::LOCAL_WRITE),
    ];
    (flags & !KNOWN == 0).then(|| {
        let requested = rights.into_iter().filter(|(bits, _)| flags & bits == *bits);
        requested.fold(Access::empty(), |access, (_, right)| access | right)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-MR-9, R-MR-10
    #[test]
    fn only_remote_write_includes_local_write() {
        assert_eq!(access(0), Some(Access::empty()));
        assert_eq!(access(1), Some(Access::LOCAL_WRITE));
        assert_eq!(access(2), Some(Access::REMOTE_READ));
        assert_eq!(access(5), Some(Access::REMOTE_WRITE | Access::LOCAL_WRITE));
        assert_eq!(access(7), Some(Access::all() - Access::REMOTE_ATOMIC));
    }

    //= R-MR-3
    #[test]
    fn longest_registration_is_the_reported_limit() {
        let refused = [0, LIMITS.registration + 1].map(|length| Normal::new().begin_register(length));
        assert_eq!(refused, [Err(STATUS_INVALID_PARAMETER); 2]);
        assert_eq!([1, LIMITS.registration].map(|length| Normal::new().begin_register(length)), [Ok(()); 2]);
    }

    //= R-MR-11
    #[test]
    fn read_sink_flag_is_accepted_and_ignored() {
        assert_eq!(access(8), Some(Access::empty()));
        assert_eq!(access(9), Some(Access::LOCAL_WRITE));
        assert_eq!(access(16), None);
    }

    #[test]
    fn normal_region_lifecycle() {
        insta::assert_snapshot!(State::table());
    }
}
