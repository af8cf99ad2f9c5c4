//! Registration by a call.
//!
//! It maps the pages of the consumer's list under a list of the provider's own, so that the consumer's may
//! go when the call completes (R-MR-8); the virtual address is an index (R-MR-6, R-MR-7).
//= R-MR-6, R-MR-7, R-MR-8

use crate::dispatch;
use crate::info::LIMITS;
use crate::machine::machine;
use crate::pd::Pd;
use crate::status::{self, Answer};
use ndk_abi::ndk::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK,
};
use ndk_abi::nt::{STATUS_DEVICE_BUSY, STATUS_INVALID_DEVICE_STATE, STATUS_INVALID_PARAMETER};
use nt::{Mapping, MdlChain, SpinLock};
use roce::{Access, Arc, Region};

machine! {
    /// The life of a normal region.
    pub enum State {
        Unregistered,
        /// A registration is under way.
        Registering,
        Registered,
        /// A deregistration is under way.
        Deregistering,
    }
    /// What happens in it.
    pub enum Event {
        Register,
        Done,
        Failed,
        Deregister,
    }
    Unregistered + Register => Registering,
    Registering + Done => Registered,
    Registering + Failed => Unregistered,
    Registered + Deregister => Deregistering,
    Deregistering + Done => Unregistered,
}

/// What is special to it.
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
    /// Keeps the region's memory; goes after it.
    mapping: Mapping,
}

impl Normal {
    pub fn new() -> Self {
        Self { inner: SpinLock::new(Inner { state: State::Unregistered, registered: None }) }
    }

    /// Begins a registration; [`Normal::register`] ends it.
    //= R-MR-3, R-MR-4, R-MR-19
    pub fn begin_register(&self, length: usize) -> Answer {
        if length == 0 || length > LIMITS.registration {
            return Err(STATUS_INVALID_PARAMETER);
        }
        self.step(Event::Register)
    }

    /// Maps and registers the first `length` bytes of the chain.
    //= R-MR-1, R-MR-2, R-MR-5, R-MR-6, R-MR-22
    pub fn register(&self, pd: &Pd, chain: MdlChain<'_>, length: usize, flags: u32) -> Answer {
        let outcome = map(pd, chain, length, flags);
        let mut inner = self.inner.lock();
        let event = if outcome.is_ok() { Event::Done } else { Event::Failed };
        inner.state = inner.state.on(event).unwrap_or(inner.state);
        inner.registered = Some(outcome?);
        Ok(())
    }

    /// Begins a deregistration; [`Normal::deregister`] ends it.
    //= R-MR-18, R-MR-20
    pub fn begin_deregister(&self) -> Answer {
        let mut inner = self.inner.lock();
        let next = inner.state.on(Event::Deregister).ok_or(STATUS_INVALID_DEVICE_STATE)?;
        if inner.registered.as_ref().is_some_and(|registered| registered.region.windows() != 0) {
            return Err(STATUS_DEVICE_BUSY);
        }
        inner.state = next;
        Ok(())
    }

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

    fn step(&self, event: Event) -> Answer {
        let mut inner = self.inner.lock();
        inner.state = inner.state.on(event).ok_or(STATUS_INVALID_DEVICE_STATE)?;
        Ok(())
    }
}

fn map(pd: &Pd, chain: MdlChain<'_>, length: usize, flags: u32) -> Answer<Registered> {
    let access = access(flags).ok_or(STATUS_INVALID_PARAMETER)?;
    let mapping = Mapping::new(chain, length).map_err(status::mdl)?;
    let engine = &pd.core().engine;
    let region = dispatch::memory::register(engine, pd.domain(), &mapping, access).map_err(status::create)?;
    Ok(Registered { region, mapping })
}

/// The token is dead and no packet touches the memory when this returns; only then is it unmapped.
fn release(pd: &Pd, registered: Option<Registered>) {
    if let Some(Registered { region, mapping }) = registered {
        pd.core().engine.deregister(&region);
        drop(mapping);
    }
}

/// The rights that `NDK_MR_FLAG_*` ask for; `None` for bits that mean nothing.
//= R-MR-9, R-MR-10, R-MR-11
fn access(flags: u32) -> Option<Access> {
    // REMOTE_WRITE contains LOCAL_WRITE.
    const KNOWN: u32 =
        NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_RDMA_READ_SINK;
    let rights = [
        (NDK_MR_FLAG_ALLOW_LOCAL_WRITE, Access::LOCAL_WRITE),
        (NDK_MR_FLAG_ALLOW_REMOTE_READ, Access::REMOTE_READ),
        (NDK_MR_FLAG_ALLOW_REMOTE_WRITE, Access::REMOTE_WRITE | Access::LOCAL_WRITE),
    ];
    (flags & !KNOWN == 0).then(|| {
        let asked = rights.into_iter().filter(|(bits, _)| flags & bits == *bits);
        asked.fold(Access::empty(), |access, (_, right)| access | right)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-MR-9, R-MR-10
    #[test]
    fn remote_write_contains_local_write_and_nothing_else_gives_it() {
        assert_eq!(access(0), Some(Access::empty()));
        assert_eq!(access(1), Some(Access::LOCAL_WRITE));
        assert_eq!(access(2), Some(Access::REMOTE_READ));
        assert_eq!(access(5), Some(Access::REMOTE_WRITE | Access::LOCAL_WRITE));
        assert_eq!(access(7), Some(Access::all()));
    }

    //= R-MR-11
    #[test]
    fn the_read_sink_flag_is_taken_and_changes_nothing() {
        assert_eq!(access(8), Some(Access::empty()));
        assert_eq!(access(9), Some(Access::LOCAL_WRITE));
        assert_eq!(access(16), None);
    }

    #[test]
    fn the_life_of_a_region() {
        insta::assert_snapshot!(crate::machine::print(State::TABLE));
    }
}
