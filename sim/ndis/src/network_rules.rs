// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rules of Winsock Kernel and of the IP helper for drivers, each with the pages that state it. What no page states is a
//! [`Tolerance`](nt_sim::Tolerance).

use nt_sim::{
    BugCheck,
    verifier::{self, Rule},
};

macro_rules! rules {
    ($($name:ident: $statement:literal, $pages:literal;)*) => {
        $(pub(crate) const $name: &Rule = &Rule { statement: $statement, pages: $pages };)*

        /// All rules, in the order of the page of the verifier.
        pub const RULES: &[&Rule] = &[$($name),*];
    };
}

rules! {
    REGISTERED: "a registration with Winsock Kernel is made once, not written to, and ended once", "`WskRegister`, `WskDeregister`";
    CAPTURED: "the provider is captured before it is used, and released as often as it is captured, before `WskDeregister` returns",
        "`WskCaptureProviderNPI`, `WskReleaseProviderNPI`, `WskDeregister`";
    ADAPTERS_CLOSED: "NDK adapters are closed once, by the client that has opened them, before it releases the provider",
        "`WskReleaseProviderNPI`, \"Opening an NDK Adapter\"";
    PROVIDER_TABLE: "the dispatch table of the provider is read", "`WSK_PROVIDER_NPI`";
    NOTIFICATION: "a notification of changes is canceled once", "`CancelMibChangeNotify2`";
    MIB_TABLE: "`FreeMibTable` frees a table of the IP helper", "`FreeMibTable`";
}

/// Reports a violation of a rule, and where it is stated.
#[cold]
pub(crate) fn broken(rule: &Rule, text: impl Into<String>) -> ! {
    verifier::broken(rule, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}
