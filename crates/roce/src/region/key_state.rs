// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a key that requests can turn on and off: that of a fast-register region or a memory window.

//= rocev2 §10
//= R-MR-41
//= R-MR-45
//= R-MR-65
//= R-MR-66
state_table::state_table! {
    /// State of a key.
    ///
    /// Source: rocev2 §10.
    pub enum State {
        /// Allocated or invalidated: grants no access, and can be registered or bound.
        Free,
        /// Registered or bound: grants the access that the registration or bind says.
        Valid,
    }
    /// Events of a key.
    pub enum Event {
        /// The send queue executes a fast registration, or a bind of a window.
        Register: Free => Valid;
        /// The send queue executes an invalidation.
        Invalidate: Valid => Free;
        /// A SEND with Invalidate of the peer completes.
        RemoteInvalidate: Valid => Free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §10
    #[test]
    fn key_states() {
        insta::assert_snapshot!(State::table(), @r"
        Free   Register          -> Valid
        Valid  Invalidate        -> Free
        Valid  RemoteInvalidate  -> Free
        ");
    }
}
