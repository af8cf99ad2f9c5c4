// SPDX-License-Identifier: MIT OR Apache-2.0

//! The data that Windows has of the driver before it runs: registry keywords, events, the INF.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`keywords`] | the table of registry keywords |
//! | [`events`] | the table of events |
//! | [`counters`] | the driver's own counters, and their class in WMI |
//! | [`tracing`] | the table of the events of the trace, and what is made of it |
//! | `inx`, `stamp`, `message_table`, `pages` | what is generated from them: `viordma.inx`, the INF, the image's message table, parts of documents |
//! | `diagnosis` | the steps by which `Test-Viordma.ps1` finds why RDMA is not used |
//! | `faults` | what is wrong with the tables |
#![cfg_attr(not(any(test, feature = "generate")), no_std)]
#![deny(unsafe_code)]

pub mod counters;
pub mod events;
pub mod keywords;
pub mod tracing;

/// Editions of the driver. Each has what the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edition {
    /// `viordma.sys`, which administrators install.
    Standard,
    /// `viordma-strict.sys`, for authors of NDK consumers: the driver with the feature `strict`.
    Strict,
}

impl Edition {
    /// Returns the name of the image and of the files beside it, without an extension.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "viordma",
            Self::Strict => "viordma-strict",
        }
    }
}

#[cfg(any(test, feature = "generate"))]
pub mod diagnosis;
#[cfg(any(test, feature = "generate"))]
pub mod faults;
#[cfg(any(test, feature = "generate"))]
pub mod inx;
#[cfg(any(test, feature = "generate"))]
pub mod message_table;
#[cfg(any(test, feature = "generate"))]
pub mod pages;
#[cfg(any(test, feature = "generate"))]
pub mod stamp;
