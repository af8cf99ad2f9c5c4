// SPDX-License-Identifier: MIT OR Apache-2.0

//! The process and its host: addresses, memory, signals, waiting.

use core::ffi::CStr;
use core::net::IpAddr;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::socket::RawAddress;
use crate::error::Error;

/// An address of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    pub ip: IpAddr,
    /// Name of its interface.
    pub interface: String,
}

/// Returns the addresses of interfaces that are up, in the order of the system.
pub fn host_addresses() -> Vec<HostAddress> {
    let mut list = core::ptr::null_mut();
    // SAFETY: `list` is writable. It is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return Vec::new();
    }
    let mut addresses = Vec::new();
    let mut next = list;
    // SAFETY: null, or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        if entry.ifa_flags & libc::IFF_UP as u32 != 0
            && let Some(ip) = ip_of(entry.ifa_addr)
        {
            // SAFETY: every entry has a name that ends with a zero byte, and lives as long as the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            addresses.push(HostAddress { ip, interface: name.to_string_lossy().into_owned() });
        }
        next = entry.ifa_next;
    }
    // SAFETY: `getifaddrs` has returned the list, and nothing refers to it any longer.
    unsafe { libc::freeifaddrs(list) };
    addresses
}

/// Returns the IP address in a socket address of an interface.
fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null, or a socket address, whose family every one has.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    let len = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut raw = RawAddress::empty();
    // SAFETY: an address of this family has `len` bytes, and the storage has room for them.
    unsafe { core::ptr::copy_nonoverlapping(address.cast::<u8>(), raw.as_mut_ptr().cast(), len) };
    raw.get().map(|address| address.ip())
}

/// Makes the pages of memory present: for writing if `write`. Shows whether they are mapped.
///
/// # Errors
/// [`Error::BadAddress`] if a page is not mapped, or not writable.
pub fn make_resident(address: usize, length: usize, write: bool) -> Result<(), Error> {
    let page = page_size();
    let first = address & !(page - 1);
    let end = address.checked_add(length).and_then(|end| end.checked_next_multiple_of(page));
    let Some(end) = end else { return Err(Error::BadAddress) };
    let advice = if write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // A kernel before 5.14 does not know the advice, and says the same as one that does of memory without permission.
    let own = 0u8;
    if populate(first, end - first, advice) || !populate((&raw const own).addr() & !(page - 1), page, advice)
    {
        return Ok(());
    }
    Err(Error::BadAddress)
}

/// Makes pages present. Returns whether they are.
fn populate(first: usize, length: usize, advice: i32) -> bool {
    let start = core::ptr::without_provenance_mut(first);
    // SAFETY: the advice faults pages in and changes no content; the kernel refuses ranges that are not mapped.
    unsafe { libc::madvise(start, length, advice) == 0 }
}

fn page_size() -> usize {
    // SAFETY: the call takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// Returns bytes that an attacker cannot predict.
pub fn random_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    // SAFETY: `seed` is writable for its length. So few bytes are returned at once, or none before the system has any.
    unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    seed
}

/// Blocks all signals of the calling thread, so that handlers of the application run on its own threads.
pub fn block_signals() {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is writable; the call initializes it.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was initialized above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut()) };
}

/// Lets another thread run.
pub fn yield_processor() {
    // SAFETY: the call takes no pointer.
    unsafe { libc::sched_yield() };
}

/// Requests large pages for memory that has their size and alignment. Without them, it has the usual pages.
pub fn request_large_pages(memory: NonNull<u8>, size: usize) {
    // SAFETY: the advice changes no contents, and has no effect on what is not mapped.
    unsafe { libc::madvise(memory.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
}

/// A descriptor to wait for, and whether it became readable.
pub type Interest<'a> = (BorrowedFd<'a>, bool);

/// Waits until a descriptor is readable, at most for `timeout`.
pub fn wait_readable(descriptors: &mut [Interest<'_>], timeout: Option<Duration>) {
    let entry = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut list: Vec<_> = descriptors.iter().map(|(fd, _)| entry(fd)).collect();
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `list` has as many entries; `time` is null or lives until after the call; without a signal mask.
    unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, time, core::ptr::null()) };
    for (entry, (_, readable)) in list.iter().zip(descriptors) {
        *readable = entry.revents != 0;
    }
}
